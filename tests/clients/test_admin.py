"""The operator's API, on its own port."""

import grpc
import pytest
from conftest import Answer, PATIENCE, admin_pb2, eventually, pb, pb_grpc, refused, text_request
from conftest import admin_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc


def report(server):
    return server.admin().MemoryReport(admin_pb2.MemoryReportRequest())


def test_the_memory_report_has_every_purpose_and_adds_up(server):
    message = report(server)
    rows = {row.purpose: row for row in message.rows}
    assert {"weights", "kv_pool", "heap", "process"} <= set(rows)
    assert rows["weights"].bytes > 0
    assert rows["process"].bytes > 0
    assert not any(row.leak_suspected for row in message.rows)
    assert message.kv_pages_total > 0
    assert message.kv_pages_used == 0
    assert message.kv_page_bytes * message.kv_pages_total == rows["kv_pool"].bytes
    for row in message.rows:
        assert row.purpose in message.table
    assert str(message.kv_pages_total) in message.table


def test_a_flush_gives_up_the_cached_pages_and_no_answer_changes(server):
    prompt = text_request("flush me " * 60, dict(temperature=0), max_tokens=4)
    first = server.stub().GenerateUnary(prompt)
    assert server.stub().GenerateUnary(prompt).started.cached_tokens > 0
    eventually(lambda: report(server).kv_pages_cached > 0, "cached pages")
    assert server.admin().FlushCache(admin_pb2.FlushCacheRequest()).pages > 0
    assert server.admin().FlushCache(admin_pb2.FlushCacheRequest()).pages == 0
    eventually(lambda: report(server).kv_pages_cached == 0, "no cached page")
    again = server.stub().GenerateUnary(prompt)
    assert again.started.cached_tokens == 0
    assert again.text == first.text


def test_a_flush_while_requests_run_leaves_theirs_alone(server):
    request = text_request("running " * 60, dict(seed=2), max_tokens=200, ignore_end_token=True)
    whole = server.stub().GenerateUnary(request)
    call = server.stub(server.slow_channel()).Generate(request)
    first = next(call)
    for _ in range(3):
        server.admin().FlushCache(admin_pb2.FlushCacheRequest())
    answer = Answer(call)
    answer.add(first)
    assert answer.token_ids == list(whole.token_ids)


def test_the_log_level_changes_and_a_wrong_one_is_refused_by_name(server):
    for level in ("trace", "error", "info"):
        server.admin().SetLogLevel(admin_pb2.SetLogLevelRequest(level=level))
    for level in ("", "loud", "INFO "):
        error = refused(
            server.admin().SetLogLevel, admin_pb2.SetLogLevelRequest(level=level)
        )
        assert error.code() == grpc.StatusCode.INVALID_ARGUMENT
        assert "level" in error.details().split(":")[0]


def test_an_unknown_field_is_refused_by_its_number(server):
    channel = server.channel(address=server.admin_grpc_address)
    raw = channel.unary_unary("/renga.v1.Admin/FlushCache")
    error = refused(raw, b"\x38\x01")
    assert error.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert "unknown field 7" in error.details()


def test_each_service_is_on_its_own_port_alone(server):
    wrong = admin_pb2_grpc.AdminStub(server.channel())
    error = refused(wrong.Drain, admin_pb2.DrainRequest())
    assert error.code() == grpc.StatusCode.UNIMPLEMENTED
    wrong = pb_grpc.InferenceStub(server.channel(address=server.admin_grpc_address))
    error = refused(wrong.GetModel, pb.GetModelRequest())
    assert error.code() == grpc.StatusCode.UNIMPLEMENTED


@pytest.mark.parametrize("port", ["client", "admin"])
def test_reflection_lists_the_services_of_its_port(server, port):
    address = server.grpc_address if port == "client" else server.admin_grpc_address
    stub = reflection_pb2_grpc.ServerReflectionStub(server.channel(address=address))
    ask = reflection_pb2.ServerReflectionRequest(list_services="")
    (answer,) = stub.ServerReflectionInfo(iter([ask]))
    names = {s.name for s in answer.list_services_response.service}
    assert ("renga.v1.Inference" in names) == (port == "client")
    assert ("renga.v1.Admin" in names) == (port == "admin")


def test_drain_is_a_first_sigterm(start, tiny_model):
    server = start(tiny_model).wait_ready()
    call = server.stub(server.slow_channel()).Generate(
        text_request(max_tokens=400, ignore_end_token=True)
    )
    first = next(call)
    server.admin().Drain(admin_pb2.DrainRequest())
    eventually(lambda: server.check() == "NOT_SERVING", "not serving")
    error = refused(server.stub().GenerateUnary, text_request(), timeout=PATIENCE)
    assert error.code() == grpc.StatusCode.UNAVAILABLE
    answer = Answer(call)
    answer.add(first)
    assert answer.error is None
    assert answer.finished.usage.completion_tokens == 400
    assert server.wait_exit() == 0
