"""Metrics, health and memory after a storm: every request counted once, nothing left."""

import pathlib
import threading

import grpc
from conftest import Answer, PATIENCE, block, eventually, in_threads, load_of, pb, refused, text_request


def counters(server):
    """Every sample of a counter, by its name and labels."""
    found = {}
    for line in server.get("/metrics")[1].splitlines():
        name, _, value = line.rpartition(" ")
        if not line.startswith("#") and name.split("{")[0].endswith("_total"):
            found[name] = float(value)
    return found


def test_gauges_and_counters_after_50_streams_are_cut_at_once(start, tiny_model):
    server = start(tiny_model, "--grpc.write_timeout_ms", "600000").wait_ready()
    seen = [counters(server)]
    calls = []
    for i in range(50):
        channel = server.slow_channel()
        calls.append(
            server.stub(channel).Generate(
                text_request(f"{i} prompt", max_tokens=4000, ignore_end_token=True)
            )
        )
    # A call that is cut before it reaches the server is none there.
    eventually(
        lambda: server.metric("renga_requests_running") == 50, "50 requests at the same time"
    )
    for call in calls[:10]:
        next(call)
    for call in calls:
        call.cancel()
    # Without any new request.
    eventually(server.idle, "idle")
    eventually(lambda: server.metric("renga_requests_total") == 50, "50 requests counted")
    seen.append(counters(server))
    begun = server.metric("renga_requests_total")
    generated = server.metric("renga_generated_tokens_total")
    usage = 0
    for i in range(10):
        answer = server.stub().GenerateUnary(text_request(f"{i} two", n=2, max_tokens=7))
        usage += answer.finished.usage.completion_tokens
    eventually(lambda: server.metric("renga_requests_total") == begun + 10, "10 more")
    assert server.metric("renga_generated_tokens_total") == generated + usage
    assert server.metric("renga_requests_total", outcome="ok") == 10
    assert server.metric("renga_requests_total", outcome="cancelled") == begun
    seen.append(counters(server))
    for earlier, later in zip(seen, seen[1:]):
        for name, value in earlier.items():
            assert later.get(name, 0) >= value, name
    eventually(server.idle, "idle")


def test_health_and_metrics_answer_while_a_long_prompt_is_computed(start, tiny_model):
    server = start(tiny_model).wait_ready()
    size = server.stub().GetModel(pb.GetModelRequest()).context_length
    done = threading.Event()

    def load():
        stub = server.stub()
        for i in range(6):
            ids = pb.TokenIds(ids=[i + 3] * int(0.9 * size))
            stub.GenerateUnary(pb.GenerateRequest(token_ids=ids, max_tokens=1))
        done.set()

    thread = threading.Thread(target=load)
    thread.start()
    rounds = 0
    while not done.is_set() or rounds < 3:
        assert server.get("/livez")[0] == 200
        assert server.get("/readyz")[0] == 200
        assert "renga_ready" in server.get("/metrics")[1]
        assert server.check() == "SERVING"
        server.stub().GetLoad(pb.GetLoadRequest())
        rounds += 1
    thread.join(PATIENCE)


def test_queued_requests_finish_when_the_server_drains(start, tiny_model):
    server = start(tiny_model, "--scheduler.max_sequences", "1").wait_ready()
    running = block(server)
    queued = [server.stub().Generate(text_request(max_tokens=3)) for _ in range(2)]
    eventually(lambda: load_of(server).waiting == 2, "two wait")
    server.terminate()
    eventually(lambda: server.check() == "NOT_SERVING", "not serving")
    assert refused(server.stub().GenerateUnary, text_request()).code() == (
        grpc.StatusCode.UNAVAILABLE
    )
    # What is about running requests is still answered.
    assert not load_of(server).ready
    assert server.stub().Cancel(pb.CancelRequest(request_ids=["x"])).cancelled == 0
    # The running ones go on as soon as they are read.
    for answer in in_threads([lambda c=call: Answer(c) for call in (*running, *queued)]):
        assert answer.error is None
        assert answer.finished.finish_reason
    assert server.wait_exit() == 0


def test_nothing_is_left_open_after_many_connections(start, tiny_model):
    server = start(tiny_model).wait_ready()
    process = pathlib.Path(f"/proc/{server.process.pid}")

    def used():
        return len(list((process / "fd").iterdir())), len(list((process / "task").iterdir()))

    def round():
        for i in range(20):
            channel = server.channel()
            call = server.stub(channel).Generate(text_request(max_tokens=50))
            if i % 2:
                call.cancel()
            else:
                Answer(call)
            channel.close()

    round()  # gRPC's own threads and descriptors come with the first calls.
    eventually(server.idle, "idle")
    descriptors, threads = used()
    for _ in range(3):
        round()
    eventually(server.idle, "idle")
    eventually(lambda: used()[0] <= descriptors + 4, f"{descriptors} descriptors")
    eventually(lambda: used()[1] <= threads + 4, f"{threads} threads")
