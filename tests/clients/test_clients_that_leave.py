"""Cancel, deadline, vanished and stalled clients: the work ends and everything is freed."""

import resource
import signal
import socket
import subprocess
import sys
import time

import grpc
import pytest
from conftest import Answer, PATIENCE, Server, eventually, pb
from raw_http2 import DeafClient


@pytest.fixture(scope="module")
def server(tiny_model):
    running = Server(tiny_model, "--grpc.write_timeout_ms", "600000").wait_ready()
    yield running
    running.stop_alive()


def long_request(prompt="hi"):
    return pb.GenerateRequest(text=prompt, max_tokens=4000, ignore_end_token=True)


def assert_goes_idle(server):
    eventually(server.idle, "idle")
    again = server.stub().GenerateUnary(
        pb.GenerateRequest(text="hi", max_tokens=4, sampling=pb.SamplingParams(seed=1))
    )
    assert again.finished.finish_reason


def stalled_stream(server, **options):
    """A long answer of which one message is read: it pauses and cannot end."""
    call = server.stub(server.slow_channel()).Generate(long_request(), **options)
    assert next(call).WhichOneof("event") == "started"
    return call


def test_a_cancelled_stream_frees_all(server):
    call = stalled_stream(server)
    assert not server.idle()
    call.cancel()
    assert_goes_idle(server)


def test_a_closed_channel_frees_all(server):
    channel = server.slow_channel()
    call = server.stub(channel).Generate(long_request())
    next(call)
    channel.close()
    assert_goes_idle(server)


def test_a_deadline_ends_a_stalled_stream(server):
    answer = Answer(stalled_stream(server, timeout=0.5))
    # Read at full speed it may end in time on a fast machine.
    if answer.error is not None:
        assert answer.error.code() == grpc.StatusCode.DEADLINE_EXCEEDED
    call = stalled_stream(server, timeout=0.3)
    eventually(lambda: not call.is_active(), "the deadline")
    assert call.code() == grpc.StatusCode.DEADLINE_EXCEEDED
    assert_goes_idle(server)


def test_deadlines_are_counted_as_such(start, tiny_model):
    server = start(tiny_model, "--grpc.write_timeout_ms", "600000").wait_ready()
    for _ in range(5):
        call = stalled_stream(server, timeout=0.1)
        eventually(lambda: not call.is_active(), "the deadline")
    call = stalled_stream(server, timeout=PATIENCE)
    call.cancel()

    def counts():
        lines = server.get("/metrics")[1].splitlines()
        total = [l for l in lines if l.startswith("renga_requests_total")]
        return [
            sum(float(l.rsplit(" ", 1)[1]) for l in total if f'"{outcome}"' in l)
            for outcome in ("deadline", "cancelled", "ok", "error")
        ]

    eventually(lambda: sum(counts()) == 6, "6 requests counted")
    assert counts() == [5, 1, 0, 0]


def test_a_deadline_too_short_for_anything_is_told_so(server):
    for _ in range(20):
        with pytest.raises(grpc.RpcError) as caught:
            server.stub().GenerateUnary(long_request("x" * 2000), timeout=0.001)
        # It passed, or was predicted to.
        assert caught.value.code() in (
            grpc.StatusCode.DEADLINE_EXCEEDED,
            grpc.StatusCode.RESOURCE_EXHAUSTED,
        )
    assert_goes_idle(server)


VANISHING = """
import sys
sys.path[:0] = {path!r}
import grpc
from renga.v1 import inference_pb2 as pb, inference_pb2_grpc as pb_grpc
options = (("grpc.http2.bdp_probe", 0), ("grpc.http2.lookahead_bytes", 1024))
stub = pb_grpc.InferenceStub(grpc.insecure_channel({address!r}, options=options))
request = pb.GenerateRequest(text="hi", max_tokens=4000, ignore_end_token=True)
calls = [stub.Generate(request) for _ in range(16)]
for call in calls:
    next(call)
print("reading", flush=True)
sys.stdin.read()
"""


def test_a_killed_client_process_frees_all(server):
    script = VANISHING.format(path=sys.path, address=server.grpc_address)
    with subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as client:
        assert client.stdout.readline() == b"reading\n"
        assert not server.idle()
        client.send_signal(signal.SIGKILL)
        client.wait(PATIENCE)
    assert_goes_idle(server)


def test_stalled_readers_do_not_slow_others_down(server):
    calls = [stalled_stream(server) for _ in range(8)]
    request = pb.GenerateRequest(text="hi", max_tokens=50, ignore_end_token=True)
    for _ in range(5):
        answer = Answer(server.stub().Generate(request))
        assert answer.finished.usage.completion_tokens == 50
    for call in calls:
        assert call.is_active()
        call.cancel()
    assert_goes_idle(server)


def resident_bytes(server):
    with open(f"/proc/{server.process.pid}/status") as status:
        (line,) = [line for line in status if line.startswith("VmRSS:")]
    return int(line.split()[1]) * 1024


def test_50_streams_that_nobody_reads_take_a_bounded_memory_each(start, tiny_model):
    server = start(tiny_model, "--grpc.write_timeout_ms", "600000").wait_ready()
    request = pb.GenerateRequest(text="hi", max_tokens=50, ignore_end_token=True)
    server.stub().GenerateUnary(request)
    before = resident_bytes(server)
    calls = [stalled_stream(server) for _ in range(50)]
    # One that reads is served beside them.
    assert server.stub().GenerateUnary(request).finished.usage.completion_tokens == 50
    tokens = -1
    while tokens != server.metric("renga_generated_tokens_total"):
        tokens = server.metric("renga_generated_tokens_total")
        time.sleep(0.1)
    pages = server.metric("renga_kv_pages_used")
    page_bytes = 2 * 2 * 2 * 16 * 64 * 2  # K and V, layers, heads, head_dim, tokens, f16.
    assert resident_bytes(server) - before < pages * page_bytes + 50 * 2**20
    for call in calls:
        call.cancel()
    assert_goes_idle(server)


def test_a_stalled_reader_gets_the_whole_answer_when_it_goes_on(server):
    request = long_request()
    request.sampling.seed = 5
    whole = server.stub().GenerateUnary(request)
    call = server.stub(server.slow_channel()).Generate(request)
    first = next(call)
    # Until its sequence pauses: nothing runs any more.
    tokens = -1
    while tokens != server.metric("renga_generated_tokens_total"):
        tokens = server.metric("renga_generated_tokens_total")
        time.sleep(0.2)
    assert call.is_active()
    answer = Answer(call)
    answer.add(first)
    assert answer.error is None
    assert answer.text == whole.text
    assert answer.token_ids == list(whole.token_ids)
    assert_goes_idle(server)


def test_a_reader_that_takes_nothing_is_cut_after_the_write_timeout(start, tiny_model):
    server = start(tiny_model, "--grpc.write_timeout_ms", "300").wait_ready()
    call = stalled_stream(server)
    server.wait_event("write_timeout")
    assert_goes_idle(server)
    assert Answer(call).error.code() == grpc.StatusCode.CANCELLED


def test_every_request_is_counted_once(start, tiny_model):
    server = start(tiny_model).wait_ready()
    before = server.metric("renga_requests_total")
    calls = [stalled_stream(server) for _ in range(10)]
    for call in calls:
        call.cancel()
    for _ in range(5):
        server.stub().GenerateUnary(pb.GenerateRequest(text="hi", max_tokens=2))
    eventually(server.idle, "idle")
    eventually(
        lambda: server.metric("renga_requests_total") - before == 15, "15 requests counted"
    )


def test_a_unary_answer_that_nobody_takes_is_cut(tiny_model):
    server = Server(tiny_model, "--grpc.write_timeout_ms", "300").wait_ready()
    client = DeafClient(
        server.grpc_address,
        "/renga.v1.Inference/GenerateUnary",
        pb.GenerateRequest(text="hi", max_tokens=4),
    )

    def cut():
        client.serve_pings(0.05)
        return any(event["event"] == "write_timeout" for event in server.events())

    eventually(cut, "the cut")
    # Nothing is left to wait for: a drain ends at once, not at its limit of 30 s.
    server.terminate()
    assert server.wait_exit() == 0
    assert not any(event["event"] == "drain_timeout" for event in server.events())
    client.close()


def test_more_connections_than_the_soft_limit_of_descriptors(tiny_model):
    """gRPC accepts nobody any more once the process had no descriptor left."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    server = Server(
        tiny_model,
        # Not by code that runs between fork and exec: gRPC's threads don't live through a fork.
        through=("prlimit", f"--nofile=64:{hard}"),
    ).wait_ready()
    host, port = server.grpc_address.rsplit(":", 1)
    idle_ones = [socket.create_connection((host, int(port))) for _ in range(100)]
    try:
        answer = server.stub().GenerateUnary(
            pb.GenerateRequest(text="hi", max_tokens=4), timeout=PATIENCE
        )
        assert answer.finished.finish_reason
    finally:
        for connection in idle_ones:
            connection.close()
    server.stop_alive()
