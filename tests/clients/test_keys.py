"""Keys: who may call what, and what nobody gets to see."""

import grpc
import pytest
from conftest import Answer, Server, admin_pb2, pb, pb_grpc, refused, text_request
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

KEYS = {
    "alice": "alice-key-0123456789",
    "bob": "bob-key-0123456789",
    "admin": "admin-key-0123456789",
}


def bearer(tenant):
    return (("authorization", f"Bearer {KEYS[tenant]}"),)


def write_keys(path, text, mode=0o600):
    path.write_text(text)
    path.chmod(mode)
    return str(path)


@pytest.fixture(scope="module")
def server(tiny_model, tmp_path_factory):
    lines = "".join(f"{tenant} {key}\n" for tenant, key in KEYS.items())
    path = write_keys(tmp_path_factory.mktemp("keys") / "keys", "# tenants\n\n" + lines)
    running = Server(
        tiny_model, "--auth.keys_file", path, "--log.level", "trace"
    ).wait_ready()
    yield running
    running.stop_alive()
    log = "\n".join(running.lines)
    assert not [key for key in (*KEYS.values(), "wrong-key") if key in log]


def first_of(stream):
    """A stream's first message; the rest is not wanted."""
    try:
        return next(stream)
    finally:
        stream.cancel()


def every_rpc(server):
    """(name, call) of each RPC of both services, from their descriptors."""
    inference, admin = server.stub(), server.admin()
    for module, stub, service in (
        (pb, inference, "Inference"),
        (admin_pb2, admin, "Admin"),
    ):
        for method in module.DESCRIPTOR.services_by_name[service].methods:
            call = getattr(stub, method.name)
            request = method.input_type._concrete_class()
            if isinstance(call, grpc.UnaryStreamMultiCallable):
                yield method.name, lambda c=call, r=request, **o: first_of(c(r, **o))
            else:
                yield method.name, lambda c=call, r=request, **o: c(r, **o)


WRONG = {
    "none": (),
    "wrong": (("authorization", "Bearer wrong-key-0123456789"),),
    "no scheme": (("authorization", KEYS["alice"]),),
    "basic": (("authorization", "Basic " + KEYS["alice"]),),
    "two": bearer("alice") + bearer("alice"),
    "half": (("authorization", "Bearer " + KEYS["alice"][:-1]),),
    "tenant only": (("x-tenant-id", "alice"),),
}


@pytest.mark.parametrize("case", WRONG)
def test_no_rpc_answers_without_a_good_key(server, case):
    rpcs = list(every_rpc(server))
    assert len(rpcs) == 12
    for name, call in rpcs:
        error = refused(call, metadata=WRONG[case])
        assert error.code() == grpc.StatusCode.UNAUTHENTICATED, name
        # The same text for a missing and for a wrong one.
        assert error.details().endswith("authorization: Bearer KEY")


def test_every_rpc_is_reached_with_one(server):
    for name, call in every_rpc(server):
        if name == "Drain":
            continue
        try:
            call(metadata=bearer("admin"))
        except grpc.RpcError as error:
            assert error.code() == grpc.StatusCode.INVALID_ARGUMENT, name


def test_health_needs_no_key_and_there_is_no_reflection(server):
    assert server.check() == "SERVING"
    ask = reflection_pb2.ServerReflectionRequest(list_services="")
    for address in (server.grpc_address, server.admin_grpc_address):
        stub = reflection_pb2_grpc.ServerReflectionStub(server.channel(address=address))
        error = refused(
            lambda: list(stub.ServerReflectionInfo(iter([ask]), metadata=bearer("admin")))
        )
        assert error.code() == grpc.StatusCode.UNIMPLEMENTED


def test_a_key_serves_and_the_tenant_header_is_refused_beside_it(server):
    answer = Answer(server.stub().Generate(text_request(), metadata=bearer("alice")))
    assert answer.error is None
    error = refused(
        server.stub().GenerateUnary,
        text_request(),
        metadata=bearer("alice") + (("x-tenant-id", "alice"),),
    )
    assert error.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert error.details().startswith("x-tenant-id: ")


def test_admin_is_for_the_tenant_admin_alone(server):
    request = admin_pb2.MemoryReportRequest()
    error = refused(server.admin().MemoryReport, request, metadata=bearer("alice"))
    assert error.code() == grpc.StatusCode.PERMISSION_DENIED
    assert server.admin().MemoryReport(request, metadata=bearer("admin")).rows


def test_tenants_do_not_share_cached_prompts(server):
    request = text_request("a prompt of some length " * 12, dict(temperature=0), max_tokens=2)
    answers = {
        (tenant, round): server.stub().GenerateUnary(request, metadata=bearer(tenant))
        for tenant in ("alice", "bob")
        for round in (1, 2)
    }
    for (tenant, round), answer in answers.items():
        assert (answer.started.cached_tokens > 0) == (round == 2), (tenant, round)
        assert answer.text == answers["alice", 1].text


def test_tenants_do_not_cancel_each_other(server):
    stub = pb_grpc.InferenceStub(server.slow_channel())
    request = text_request(max_tokens=4000, ignore_end_token=True)
    call = stub.Generate(request, metadata=bearer("alice") + (("x-request-id", "mine"),))
    own = next(call).started.request_id
    ids = pb.CancelRequest(request_ids=[own, "mine"])
    assert server.stub().Cancel(ids, metadata=bearer("bob")).cancelled == 0
    assert server.stub().Cancel(ids, metadata=bearer("alice")).cancelled == 1
    assert Answer(call).error.code() == grpc.StatusCode.CANCELLED


BAD_FILES = {
    "no key": ("alice\n", "line 1"),
    "short key": ("# x\n\nalice short\n", "line 3"),
    "key twice": ("a SECRET-0123456789\nb SECRET-0123456789\n", "line 2"),
    "odd tenant": ("al/ce SECRET-0123456789\n", "line 1"),
    "empty": ("", "auth.keys_file"),
}


@pytest.mark.parametrize("case", BAD_FILES)
def test_a_bad_keys_file_stops_the_start_with_its_line(start, tiny_model, tmp_path, case):
    text, where = BAD_FILES[case]
    server = start(tiny_model, "--auth.keys_file", write_keys(tmp_path / "keys", text))
    assert server.wait_exit() > 0
    output = "\n".join(server.lines)
    assert "auth.keys_file" in output and where in output
    assert "SECRET" not in output
    assert "model_loaded" not in output


def test_a_missing_keys_file_stops_the_start(start, tiny_model, tmp_path):
    server = start(tiny_model, "--auth.keys_file", str(tmp_path / "absent"))
    assert server.wait_exit() > 0
    assert "absent" in "\n".join(server.lines)


def test_a_keys_file_that_all_may_read_is_warned_of(start, tiny_model, tmp_path):
    path = write_keys(tmp_path / "keys", f"alice {KEYS['alice']}\n", 0o644)
    server = start(tiny_model, "--auth.keys_file", path).wait_ready()
    assert server.wait_event("keys_file_readable_by_all")
    assert KEYS["alice"] not in "\n".join(server.lines)
