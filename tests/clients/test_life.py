"""Start, health, shutdown."""

import signal
import socket
import threading

import grpc
import pytest
from conftest import Answer, PATIENCE, eventually, make_tiny_model, pb
from grpc_health.v1 import health_pb2, health_pb2_grpc

STATUS = health_pb2.HealthCheckResponse.ServingStatus


class Watch:
    """Collects what grpc.health.v1 Watch says."""

    def __init__(self, server):
        stub = health_pb2_grpc.HealthStub(server.channel())
        self.seen = []
        self._call = stub.Watch(health_pb2.HealthCheckRequest(service="renga.v1.Inference"))
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self):
        try:
            for message in self._call:
                self.seen.append(STATUS.Name(message.status))
        except grpc.RpcError:
            pass

    def wait(self, status):
        eventually(lambda: self.seen[-1:] == [status], f"{status} after {self.seen}")

    def join(self):
        self._thread.join(PATIENCE)


@pytest.fixture(scope="session")
def slow_model(tmp_path_factory):
    """Its warm-up takes long enough for a client to connect before it ends."""
    path = tmp_path_factory.mktemp("models") / "slow.gguf"
    return make_tiny_model(
        path, layers=16, dim=512, heads=8, kv_heads=8, head_dim=64, ffn=1024, type="q8_0"
    )


def request(**fields):
    return pb.GenerateRequest(
        **{"text": "hi", "max_tokens": 4, "ignore_end_token": True, **fields}
    )


def stalled_stream(server):
    """A long answer that cannot end until it is read."""
    long = request(max_tokens=4000, sampling=pb.SamplingParams(seed=5))
    call = server.stub(server.slow_channel()).Generate(long)
    return call, next(call), long


def test_health_goes_from_not_serving_to_serving_to_not_serving(start, slow_model):
    server = start(slow_model).wait_listening()
    watch = Watch(server)
    assert server.get("/livez")[0] == 200
    early = server.get("/readyz")[0]
    with pytest.raises(grpc.RpcError) as caught:
        server.stub().GenerateUnary(request())
    assert caught.value.code() == grpc.StatusCode.UNAVAILABLE
    watch.wait("SERVING")
    # A request sent at the first SERVING works.
    assert server.stub().GenerateUnary(request()).finished.finish_reason
    assert server.check("") == "SERVING"
    assert server.check("renga.v1.Inference") == "SERVING"
    assert early == 503
    assert server.get("/readyz")[0] == 200
    server.terminate()
    assert server.wait_exit() == 0
    watch.join()
    assert watch.seen == ["NOT_SERVING", "SERVING", "NOT_SERVING"]


def test_health_of_an_unknown_service_is_not_found(start, tiny_model):
    server = start(tiny_model).wait_ready()
    with pytest.raises(grpc.RpcError) as caught:
        server.check("nobody")
    assert caught.value.code() == grpc.StatusCode.NOT_FOUND


def test_sigterm_lets_running_streams_finish_and_refuses_new_ones(start, tiny_model):
    server = start(tiny_model).wait_ready()
    calls = [stalled_stream(server) for _ in range(3)]
    reference = server.stub().GenerateUnary(calls[0][2])
    old_channel = server.channel()
    grpc.channel_ready_future(old_channel).result(PATIENCE)
    watch = Watch(server)
    watch.wait("SERVING")

    server.terminate()
    watch.wait("NOT_SERVING")
    assert server.check() == "NOT_SERVING"
    assert server.get("/readyz")[0] == 503
    assert server.get("/livez")[0] == 200
    for channel in (old_channel, server.channel()):
        with pytest.raises(grpc.RpcError) as caught:
            server.stub(channel).GenerateUnary(request())
        assert caught.value.code() == grpc.StatusCode.UNAVAILABLE
    for call, first, _ in calls:
        answer = Answer(call)
        answer.add(first)
        assert answer.error is None
        assert answer.text == reference.text
        assert (
            answer.finished.usage.completion_tokens
            == reference.finished.usage.completion_tokens
        )
    assert server.wait_exit() == 0


def test_the_drain_limit_ends_streams_with_unavailable(start, tiny_model):
    server = start(tiny_model, "--drain.timeout_ms", "300").wait_ready()
    call, _, _ = stalled_stream(server)
    server.terminate()
    server.wait_event("drain_timeout")
    answer = Answer(call)
    assert answer.error.code() == grpc.StatusCode.UNAVAILABLE
    assert server.wait_exit() == 0


def test_a_second_sigterm_exits_at_once(start, tiny_model):
    server = start(tiny_model, "--drain.timeout_ms", "3600000").wait_ready()
    call, _, _ = stalled_stream(server)
    server.terminate()
    server.wait_event("draining")
    assert call.is_active()
    server.terminate()
    assert server.wait_exit() != 0
    assert server.process.returncode != -signal.SIGKILL


def test_sigterm_while_idle_exits_0(start, tiny_model):
    server = start(tiny_model).wait_ready()
    server.terminate()
    assert server.wait_exit() == 0


def test_sigterm_while_loading_exits_0(start, slow_model):
    server = start(slow_model).wait_listening()
    server.terminate()
    assert server.wait_exit() == 0


@pytest.mark.parametrize("flag", ["--grpc.address", "--admin.address", "--admin.grpc_address"])
def test_a_port_in_use_ends_the_start_before_the_model_loads(start, tiny_model, flag):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = "127.0.0.1:%d" % taken.getsockname()[1]
        server = start(tiny_model, flag, address)
        assert server.wait_exit() > 0
    output = "\n".join(server.lines)
    assert address in output
    assert "model_loaded" not in output


def test_the_port_of_another_server_is_in_use(start, tiny_model):
    first = start(tiny_model).wait_ready()
    second = start(tiny_model, "--grpc.address", first.grpc_address)
    assert second.wait_exit() > 0
    assert first.grpc_address in "\n".join(second.lines)
    assert first.stub().GenerateUnary(request()).finished.finish_reason


WRONG_SETTINGS = {
    "unknown flag": (["--scheduler.windw_ms", "5"], {}, "scheduler.windw_ms"),
    "not a number": (["--scheduler.window_ms", "soon"], {}, "scheduler.window_ms"),
    "out of range": (["--scheduler.max_sequences", "-1"], {}, "scheduler.max_sequences"),
    "not a level": (["--log.level", "loud"], {}, "log.level"),
    "environment": ([], {"RENGA_KV_DTYPE": "f99"}, "kv.dtype"),
    "unknown variable": ([], {"RENGA_SCHEDULER_WINDW_MS": "5"}, "RENGA_SCHEDULER_WINDW_MS"),
}


@pytest.mark.parametrize("case", WRONG_SETTINGS)
def test_a_wrong_setting_stops_the_start_with_its_name(start, tiny_model, case):
    flags, environment, name = WRONG_SETTINGS[case]
    server = start(tiny_model, *flags, environment=environment)
    assert server.wait_exit() > 0
    assert name in "\n".join(server.lines)


def test_a_missing_or_broken_model_stops_the_start_with_its_name(start, tmp_path):
    for name, content in (("absent.gguf", None), ("bad.gguf", b"GGUF"), ("x.gguf", b"")):
        path = tmp_path / name
        if content is not None:
            path.write_bytes(content)
        server = start(str(path))
        assert server.wait_exit() > 0
        assert name in "\n".join(server.lines)


def test_no_prompt_is_in_the_log(start, tiny_model):
    server = start(tiny_model, "--log.level", "trace").wait_ready()
    marker = "ZQX-17"
    server.stub().GenerateUnary(request(text=marker))
    with pytest.raises(grpc.RpcError):
        server.stub().GenerateUnary(request(text=marker, model=marker))
    with pytest.raises(grpc.RpcError):
        server.stub().GenerateUnary(request(text=marker * 10_000))
    metrics = server.get("/metrics")[1]
    server.terminate()
    assert server.wait_exit() == 0
    assert marker not in "\n".join(server.lines)
    assert marker not in metrics
