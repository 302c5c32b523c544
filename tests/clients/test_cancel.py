"""Cancel and GetLoad; cancels and deadlines at every stage, also in a race with the end."""

import random
import threading
import time

import grpc
import pytest
from conftest import (
    Answer,
    PATIENCE,
    Server,
    block,
    eventually,
    in_threads,
    load_of,
    pb,
    refused,
    stalled_stream,
    text_request,
)


@pytest.fixture(scope="module")
def server(tiny_model):
    running = Server(tiny_model, "--grpc.write_timeout_ms", "600000").wait_ready()
    yield running
    running.stop_alive()


@pytest.fixture(scope="module")
def narrow(tiny_model):
    """One place: see block()."""
    running = Server(
        tiny_model, "--grpc.write_timeout_ms", "600000", "--scheduler.max_sequences", "1"
    ).wait_ready()
    yield running
    running.stop_alive()


def stalled(server, *metadata):
    """A stalled stream and the server's id for it."""
    call, first = stalled_stream(server, *metadata)
    return call, first.started.request_id


def cancel(server, *ids, metadata=()):
    request = pb.CancelRequest(request_ids=ids)
    return server.stub().Cancel(request, metadata=metadata).cancelled


def end_of(call):
    return Answer(call).error.code()


# ---- Cancel --------------------------------------------------------------------------


def test_a_request_is_cancelled_by_the_servers_id_and_by_the_clients(server):
    call, own = stalled(server)
    assert cancel(server, own) == 1
    assert end_of(call) == grpc.StatusCode.CANCELLED
    call, _ = stalled(server, ("x-request-id", "mine-7"))
    assert cancel(server, "mine-7") == 1
    assert end_of(call) == grpc.StatusCode.CANCELLED
    eventually(server.idle, "idle")
    assert cancel(server, own, "mine-7", "nobody") == 0


def test_all_requests_of_one_name_are_cancelled_and_no_other(server):
    calls = [stalled(server, ("x-request-id", "same"))[0] for _ in range(3)]
    other, own = stalled(server, ("x-request-id", "other"))
    assert cancel(server, "same", "same") == 3
    assert [end_of(call) for call in calls] == [grpc.StatusCode.CANCELLED] * 3
    assert other.is_active()
    assert cancel(server, own) == 1
    assert end_of(other) == grpc.StatusCode.CANCELLED
    eventually(server.idle, "idle")


def test_a_unary_request_is_cancelled(narrow):
    blocking = block(narrow)
    waiting = narrow.stub().GenerateUnary.future(
        text_request(), metadata=(("x-request-id", "unary"),)
    )
    eventually(lambda: cancel(narrow, "unary") == 1, "the cancel")
    assert waiting.exception(PATIENCE).code() == grpc.StatusCode.CANCELLED
    for call in blocking:
        call.cancel()
    eventually(narrow.idle, "idle")


def test_tenants_do_not_cancel_each_other(server):
    call, own = stalled(server, ("x-request-id", "mine"), ("x-tenant-id", "a"))
    for metadata in ((), (("x-tenant-id", "b"),)):
        assert cancel(server, own, "mine", metadata=metadata) == 0
    assert call.is_active()
    assert cancel(server, "mine", metadata=(("x-tenant-id", "a"),)) == 1
    assert end_of(call) == grpc.StatusCode.CANCELLED


def test_cancel_wants_1_to_1024_ids(server):
    for ids in ([], ["x"] * 1025):
        error = refused(server.stub().Cancel, pb.CancelRequest(request_ids=ids))
        assert error.code() == grpc.StatusCode.INVALID_ARGUMENT
        assert error.details().startswith("request_ids: ")


# ---- While it waits, and while its prompt is computed ----------------------------------

WAYS_TO_END = ("client", "rpc", "deadline", "deadline_ms")


@pytest.mark.parametrize("way", WAYS_TO_END)
def test_a_request_that_ends_while_it_waits_never_starts(narrow, way):
    blocking = block(narrow)
    prompts = narrow.metric("renga_prompt_tokens_total")
    fields = dict(deadline_ms=200) if way == "deadline_ms" else {}
    call = narrow.stub().Generate(
        text_request("waits " * 100, **fields),
        metadata=(("x-request-id", "waits"),),
        timeout=0.2 if way == "deadline" else None,
    )
    if way in ("client", "rpc"):
        eventually(lambda: load_of(narrow).waiting == 1, "one waits")
        call.cancel() if way == "client" else cancel(narrow, "waits")
    answer = Answer(call)
    assert answer.order == []
    assert answer.error.code() in (
        [grpc.StatusCode.CANCELLED]
        if way in ("client", "rpc")
        else [grpc.StatusCode.DEADLINE_EXCEEDED]
    )
    eventually(lambda: narrow.metric("renga_requests_waiting") == 0, "nobody waits")
    assert narrow.metric("renga_prompt_tokens_total") == prompts
    assert all(blocked.is_active() for blocked in blocking)
    for call in blocking:
        call.cancel()
    eventually(narrow.idle, "idle")


@pytest.mark.parametrize("way", WAYS_TO_END)
def test_a_prompt_that_is_given_up_half_way_does_no_harm(start, tiny_model, way):
    # Small steps: the prompt takes many.
    server = start(tiny_model, "--scheduler.max_step_tokens", "64").wait_ready()
    prompt = "word " * 700
    greedy = text_request(prompt, dict(temperature=0), max_tokens=8, no_cache=True)
    reference = list(server.stub().GenerateUnary(greedy).token_ids)
    greedy.no_cache = False
    for delay in (0.0, 0.002, 0.01, 0.03):
        if way == "deadline_ms":
            greedy.deadline_ms = 1 + int(delay * 1000)
        call = server.stub().Generate(
            greedy,
            metadata=(("x-request-id", "half"),),
            timeout=0.001 + delay if way == "deadline" else None,
        )
        time.sleep(delay)
        if way == "client":
            call.cancel()
        elif way == "rpc":
            cancel(server, "half")
        error = Answer(call).error
        assert error is None or error.code() in (
            grpc.StatusCode.CANCELLED,
            grpc.StatusCode.DEADLINE_EXCEEDED,
            grpc.StatusCode.RESOURCE_EXHAUSTED,  # Predicted to be too late.
        )
        eventually(server.idle, "idle")
    greedy.ClearField("deadline_ms")
    assert list(server.stub().GenerateUnary(greedy).token_ids) == reference
    server.stop_alive()


# ---- GetLoad -------------------------------------------------------------------------


def test_the_load_shows_what_runs_and_waits(narrow):
    idle = load_of(narrow)
    assert idle.ready
    assert (idle.running, idle.waiting, idle.waiting_tokens) == (0, 0, 0)
    assert idle.max_sequences == 1
    assert idle.max_waiting == 256
    assert idle.max_waiting_tokens == 65536
    assert idle.kv_pages_total > 0
    assert idle.kv_pages_free + idle.kv_pages_cached <= idle.kv_pages_total
    assert 0 <= idle.busy_share <= 1
    assert idle.predicted_first_token_us >= 0
    running = block(narrow)
    waiting = [narrow.stub().Generate(text_request("x " * 50)) for _ in range(3)]

    def shown():
        load = load_of(narrow)
        return load.running == 2 and load.waiting == 3 and load.waiting_tokens > 100

    eventually(shown, "two run and three wait")
    for call in (*waiting, *running):
        call.cancel()
    eventually(narrow.idle, "idle")
    eventually(lambda: not load_of(narrow).running, "idle load")


# ---- Races ---------------------------------------------------------------------------

CONNECTIONS = 16
RACES = 125  # Of each connection: 2000 in all...
ALONE_EVERY = 10  # ... of which 1 in 10 is left alone.


def short_request(dice):
    return text_request(
        "x" * dice.randrange(1, 80),
        dict(
            seed=dice.randrange(4),
            temperature=dice.choice([0, 1, 2]),
            top_k=dice.choice([0, 5]),
            repetition_penalty=dice.choice([1, 1.5]),
        ),
        max_tokens=dice.randrange(1, 16),
        n=dice.choice([1, 1, 1, 3]),
        stop=dice.choice([[], ["e"], ["a", "the"]]),
        priority=dice.randrange(4),
        cache_salt=dice.choice(["", "s"]),
        no_cache=dice.random() < 0.2,
    )


def test_2000_short_requests_with_cancels_at_random_moments(start, tiny_model):
    server = start(tiny_model).wait_ready()
    begin = time.monotonic()
    server.stub().GenerateUnary(text_request(max_tokens=8))
    usual = time.monotonic() - begin
    references = {}
    lock = threading.Lock()

    def run(number):
        dice = random.Random(number)
        stub = server.stub()
        wrong = []
        for i in range(RACES):
            request = short_request(dice)
            alone = i % ALONE_EVERY == 0
            name = f"{number}-{i}"
            stream = dice.random() < 0.5
            metadata = (("x-request-id", name),)
            if stream:
                call = stub.Generate(request, metadata=metadata)
            else:
                call = stub.GenerateUnary.future(request, metadata=metadata)
            if not alone:
                time.sleep(dice.random() * 2 * usual)
                if dice.random() < 0.3:
                    stub.Cancel(pb.CancelRequest(request_ids=[name]))
                else:
                    call.cancel()
            try:
                if stream:
                    answer = Answer(call)
                    if answer.error is not None:
                        raise answer.error
                    tokens = answer.token_ids
                else:
                    answer = call.result(PATIENCE)
                    tokens = [*answer.token_ids]
                    for choice in answer.more_choices:
                        tokens += choice.token_ids
                if alone:
                    with lock:
                        references[request.SerializeToString()] = sorted(tokens)
            except (grpc.RpcError, grpc.FutureCancelledError) as error:
                code = getattr(error, "code", lambda: grpc.StatusCode.CANCELLED)()
                if alone or code != grpc.StatusCode.CANCELLED:
                    wrong.append((name, code))
        return wrong

    results = in_threads([lambda n=n: run(n) for n in range(CONNECTIONS)])
    assert sum(results, []) == []
    eventually(server.idle, "idle")
    # Those left alone are what they are without company.
    stub = server.stub()
    for bytes, tokens in references.items():
        answer = stub.GenerateUnary(pb.GenerateRequest.FromString(bytes))
        again = [*answer.token_ids]
        for choice in answer.more_choices:
            again += choice.token_ids
        assert sorted(again) == tokens
    # Every request has one outcome, and none is counted as failed.
    total = server.metric("renga_requests_total")
    assert total <= CONNECTIONS * RACES + 1 + len(references)
    ended = [server.metric("renga_requests_total", outcome=o) for o in ("ok", "cancelled")]
    assert sum(ended) == total
    server.stop_alive()
