"""More work than room: refused at once, told when to come back, and answered exactly once."""

import grpc
import pytest
from conftest import (
    Answer,
    block,
    details_of,
    error_details_pb2,
    eventually,
    in_threads,
    load_of,
    pb,
    refused,
    text_request,
)


def start_narrow(start, model, *flags):
    return start(
        model,
        "--grpc.write_timeout_ms",
        "600000",
        "--scheduler.max_sequences",
        "1",
        *flags,
    ).wait_ready()


def assert_says_when_to_come_back(error):
    assert error.code() == grpc.StatusCode.RESOURCE_EXHAUSTED, error.details()
    retry = details_of(error, error_details_pb2.RetryInfo)
    assert retry is not None
    assert retry.retry_delay.ToNanoseconds() > 0


def unblock(calls):
    for call in calls:
        call.cancel()


def test_a_full_queue_refuses_at_once_with_retry_info_and_stays_healthy(start, tiny_model):
    server = start_narrow(start, tiny_model, "--scheduler.max_queue_requests", "12")
    blocking = block(server)
    stub = server.stub()
    queued = [stub.Generate(text_request(max_tokens=2)) for _ in range(12)]
    eventually(lambda: load_of(server).waiting == 12, "a full queue")
    for _ in range(5):
        assert_says_when_to_come_back(refused(stub.GenerateUnary, text_request()))
        assert_says_when_to_come_back(Answer(stub.Generate(text_request())).error)
    # Busy, not ill.
    assert server.check() == "SERVING"
    assert server.get("/readyz")[0] == 200
    assert server.get("/livez")[0] == 200
    assert server.metric("renga_rejections_total") == 10
    assert server.metric("renga_requests_total", outcome="rejected") == 10
    unblock(blocking)
    for call in queued:
        assert Answer(call).finished.finish_reason
    eventually(server.idle, "idle")


def test_a_queue_full_of_tokens_refuses_as_well(start, tiny_model):
    server = start_narrow(start, tiny_model, "--scheduler.max_queue_tokens", "1000")
    blocking = block(server)
    stub = server.stub()
    long = pb.GenerateRequest(token_ids=pb.TokenIds(ids=[7] * 600), max_tokens=2)
    queued = stub.Generate(long)
    eventually(lambda: load_of(server).waiting == 1, "one waits")
    assert_says_when_to_come_back(refused(stub.GenerateUnary, long))
    small = stub.Generate(text_request(max_tokens=2))
    unblock(blocking)
    assert Answer(queued).finished.finish_reason
    assert Answer(small).finished.finish_reason


def test_a_refusal_for_its_value_names_the_field_in_the_details(server):
    error = refused(server.stub().GenerateUnary, text_request(sampling=dict(top_p=2)))
    bad = details_of(error, error_details_pb2.BadRequest)
    assert [v.field for v in bad.field_violations] == ["top_p"]
    assert details_of(error, error_details_pb2.RetryInfo) is None


def test_a_deadline_that_cannot_be_met_ends_the_request_once(start, tiny_model):
    """Refused at once as predicted, or ended when it passes; never both, never neither."""
    server = start_narrow(start, tiny_model)
    blocking = block(server)
    stub = server.stub()
    requests = [text_request("x " * 300, deadline_ms=ms) for ms in (1, 2, 5, 20, 50) * 4]
    errors = in_threads([lambda r=r: Answer(stub.Generate(r)).error for r in requests])
    for error in errors:
        if error.code() == grpc.StatusCode.RESOURCE_EXHAUSTED:
            assert_says_when_to_come_back(error)
        else:
            assert error.code() == grpc.StatusCode.DEADLINE_EXCEEDED
    assert all(call.is_active() for call in blocking)
    unblock(blocking)
    eventually(server.idle, "idle")
    eventually(
        lambda: server.metric("renga_requests_total") == len(requests) + 2, "each counted once"
    )
    assert stub.GenerateUnary(text_request(max_tokens=2)).finished.finish_reason


@pytest.mark.parametrize("policy", ["window", "continuous", "serial"])
def test_every_accepted_request_is_answered_under_every_policy(start, tiny_model, policy):
    server = start(
        tiny_model, "--scheduler.policy", policy, "--scheduler.max_queue_requests", "12"
    ).wait_ready()
    stub = server.stub()
    request = text_request("hello", dict(temperature=0), max_tokens=8, ignore_end_token=True)
    reference = stub.GenerateUnary(request).text

    def run():
        answer = Answer(stub.Generate(request))
        if answer.error is not None:
            assert_says_when_to_come_back(answer.error)
            return 0
        assert answer.text == reference
        return 1

    served = sum(in_threads([run] * 60))
    assert served > 0
    eventually(server.idle, "idle")
    assert server.metric("renga_requests_total", outcome="ok") == served + 1
    assert server.metric("renga_requests_total") == 61
