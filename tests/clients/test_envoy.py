"""The API as JSON, and instances behind one address: configs/envoy.yaml in the real Envoy.

scripts/fetch_envoy.sh has the program in the cache folder, or downloads it.
"""

import contextlib
import functools
import json
import pathlib
import subprocess
import urllib.request

import grpc
import pytest
from conftest import (
    PATIENCE,
    ROOT,
    Answer,
    Server,
    _binary,
    block,
    error_details_pb2,
    eventually,
    load_of,
    pb,
    pb_grpc,
    refused,
    status_pb2,
    text_request,
)
from gateway_server import http_bytes, raw_connection, request
from google.api import annotations_pb2  # noqa: F401  So that options can be read.
from google.protobuf import json_format

GREEDY = {"text": "hi", "sampling": {"temperature": 0}, "max_tokens": 12}
# Megabytes, more than anything on the way holds: it cannot end while nobody reads.
LONG = {"text": "hi", "max_tokens": 4000, "ignore_end_token": True, "logprobs": 20}


def descriptors():
    """What the build made."""
    path = pathlib.Path(_binary()).parents[1] / "renga.pb"
    assert path.is_file(), f"the target renga_descriptors makes {path}"
    return str(path)


@functools.lru_cache
def envoy_program():
    script = ROOT / "scripts" / "fetch_envoy.sh"
    done = subprocess.run([script], check=True, stdout=subprocess.PIPE, text=True)
    return done.stdout.strip()


class Envoy:
    """One process with configs/envoy.yaml, on free ports, in front of these addresses."""

    def __init__(self, folder, *addresses):
        config = (ROOT / "configs" / "envoy.yaml").read_text()
        (endpoint,) = [line for line in config.splitlines() if "port_value: 50051" in line]
        endpoints = [
            endpoint.replace("50051", address.rsplit(":", 1)[1]) for address in addresses
        ]
        for old, new in (
            (endpoint, "\n".join(endpoints)),
            ("port_value: 8081", "port_value: 0"),
            ("port_value: 9901", "port_value: 0"),
            # A busy machine may be slow to say that it is well.
            ("- timeout: 2s", "- timeout: 60s"),
            ("build/release/renga.pb", descriptors()),
        ):
            assert old in config
            config = config.replace(old, new)
        (folder / "envoy.yaml").write_text(config)
        self._log = folder / "envoy.log"
        admin = folder / "admin_address"
        with open(self._log, "wb") as log:
            self.process = subprocess.Popen(
                [
                    envoy_program(),
                    *("-c", folder / "envoy.yaml", "--admin-address-path", admin),
                    *("--concurrency", "1", "--disable-hot-restart", "--log-level", "warning"),
                ],
                cwd=ROOT,
                stdout=log,
                stderr=log,
            )
        self._wait(lambda: admin.is_file() and admin.read_text(), "an admin address")
        self._admin = admin.read_text()
        self._wait(lambda: "clients::" in self.admin("/listeners"), "a listener")
        self.address = self.admin("/listeners").split("clients::")[1].split()[0]
        self.wait_for_instances(len(addresses))

    def _wait(self, predicate, what):
        def seen():
            assert self.process.poll() is None, self._log.read_text()
            with contextlib.suppress(OSError):
                return predicate()

        eventually(seen, what)

    def admin(self, path):
        with urllib.request.urlopen(f"http://{self._admin}{path}", timeout=PATIENCE) as answer:
            return answer.read().decode()

    def wait_for_instances(self, number):
        """Until so many are known to be well."""

        def well():
            return self.admin("/clusters").count("::health_flags::healthy") == number

        self._wait(well, f"{number} instances")

    def post(self, path, body, **headers):
        return request(self.address, "POST", f"/renga/v1/{path}", body, headers)

    def get(self, path, **headers):
        return request(self.address, "GET", f"/renga/v1/{path}", None, headers)

    def stop(self):
        self.process.kill()
        self.process.wait(PATIENCE)


@pytest.fixture
def envoy_for(tmp_path_factory):
    """envoy_for(server, ...) -> Envoy, stopped at the end of the test."""
    running = []

    def start_one(*servers):
        folder = tmp_path_factory.mktemp("envoy")
        running.append(Envoy(folder, *(server.grpc_address for server in servers)))
        return running[-1]

    yield start_one
    for envoy in running:
        envoy.stop()


@pytest.fixture(scope="module")
def server(tiny_model):
    running = Server(
        tiny_model,
        *("--grpc.write_timeout_ms", "600000", "--scheduler.max_sequences", "1"),
        *("--scheduler.max_queue_requests", "1"),
    ).wait_ready()
    yield running
    running.stop_alive()


@pytest.fixture(scope="module")
def envoy(server, tmp_path_factory):
    running = Envoy(tmp_path_factory.mktemp("envoy"), server.grpc_address)
    yield running
    assert running.process.poll() is None
    running.stop()


@contextlib.contextmanager
def blocked(server):
    """The server starts nothing meanwhile, and is idle afterwards."""
    calls = block(server)
    try:
        yield
    finally:
        for call in calls:
            call.cancel()
    eventually(server.idle, "idle")


def error_of(answer):
    """(HTTP status, google.rpc.Status) of a refusal."""
    assert answer[1]["content-type"] == "application/json"
    return answer[0], json_format.Parse(answer[2], status_pb2.Status())


def lines_of(answer):
    return [json.loads(line) for line in answer[2].splitlines()]


# ---- Answers ---------------------------------------------------------------------------------


def test_every_rpc_has_a_path_of_its_own():
    paths = []
    for method in pb.DESCRIPTOR.services_by_name["Inference"].methods:
        rule = method.GetOptions().Extensions[annotations_pb2.http]
        paths.append(rule.post or rule.get)
    assert all(path.startswith("/renga/v1/") for path in paths), paths
    assert len(set(paths)) == len(paths)


def test_one_message_is_what_grpc_gives(server, envoy):
    status, headers, body = envoy.post("generate:unary", GREEDY)
    assert (status, headers["content-type"]) == (200, "application/json")
    answer = json_format.Parse(body, pb.GenerateUnaryResponse())
    same = server.stub().GenerateUnary(text_request(sampling={"temperature": 0}, max_tokens=12))
    assert (answer.text, answer.token_ids) == (same.text, same.token_ids)
    assert answer.finished.finish_reason == same.finished.finish_reason


def test_a_stream_is_one_object_a_line_and_equals_the_one_message(envoy):
    status, headers, body = answer = envoy.post("generate", GREEDY)
    assert (status, headers["content-type"]) == (200, "application/json")
    assert body.endswith("}\n")
    whole = Answer([json_format.ParseDict(line, pb.GenerateResponse()) for line in lines_of(answer)])
    assert (whole.order[0], whole.order[-1]) == ("started", "finished")
    unary = envoy.post("generate:unary", GREEDY)
    whole.assert_equals_unary(json_format.Parse(unary[2], pb.GenerateUnaryResponse()))


def test_zeros_and_enums_can_be_read(envoy):
    answer = json.loads(envoy.post("generate:unary", {**GREEDY, "max_tokens": 1})[2])
    assert answer["finished"]["finish_reason"] == "FINISH_REASON_LENGTH"
    assert answer["more_choices"] == []
    load = json.loads(envoy.get("load")[2])
    assert load["ready"] is True
    assert (load["waiting"], load["max_sequences"]) == ("0", "1")


def test_the_other_calls_answer_as_well(server, envoy):
    model = json.loads(envoy.get("model")[2])
    assert model["name"] == server.stub().GetModel(pb.GetModelRequest()).name
    ids = json.loads(envoy.post("tokenize", {"text": "some text"})[2])["token_ids"]
    assert ids
    assert json.loads(envoy.post("detokenize", {"token_ids": ids})[2])["text"] == "some text"
    assert json.loads(envoy.post("cancel", {"request_ids": ["nobody"]})[2]) == {"cancelled": "0"}


def test_names_are_taken_in_both_spellings(envoy):
    answer = json.loads(envoy.post("generate:unary", {"text": "hi", "maxTokens": "1"})[2])
    assert answer["finished"]["usage"]["completion_tokens"] == "1"


def test_the_request_id_comes_back_also_with_a_refusal(envoy):
    for path in ("generate", "generate:unary"):
        assert envoy.post(path, GREEDY, x_request_id="mine-3")[1]["x-request-id"] == "mine-3"
        refusal = envoy.post(path, {**GREEDY, "model": "other"}, x_request_id="mine-4")
        assert (refusal[0], refusal[1]["x-request-id"]) == (404, "mine-4")


# ---- Errors ----------------------------------------------------------------------------------

BOTH = pytest.mark.parametrize("path", ["generate", "generate:unary"])


@BOTH
def test_what_the_server_refuses_has_its_code_text_and_details(envoy, path):
    status, error = error_of(envoy.post(path, {**GREEDY, "sampling": {"top_p": 2}}))
    assert (status, error.code) == (400, grpc.StatusCode.INVALID_ARGUMENT.value[0])
    assert error.message.startswith("top_p: ")
    bad = error_details_pb2.BadRequest()
    assert error.details[0].Unpack(bad)
    assert [violation.field for violation in bad.field_violations] == ["top_p"]
    status, error = error_of(envoy.post(path, {**GREEDY, "model": "other"}))
    assert (status, error.code) == (404, grpc.StatusCode.NOT_FOUND.value[0])


@BOTH
@pytest.mark.parametrize(
    "body, name",
    [
        (b'{"text": "hi", "temprature": 1}', "temprature: no such field in renga.v1.GenerateRequest"),
        (b'{"text": "hi", "sampling": {"top": 1}}', "sampling.top: no such field"),
        (b'{"text": "hi", "sampling": {"logit_bias": [{}, {"x": 1}]}}', "sampling.logit_bias[1].x: "),
        (b'{"text": "hi", "n": 1, "n": 2}', "n: comes twice"),
        (b'{"text": "hi", "priority": "URGENT"}', "priority: "),
        (b'{"text": "hi", "max_tokens": "many"}', "max_tokens: "),
        (b'{"text": "hi"', "not JSON at byte 13"),
        (b'{"text": "hi"} x', "not JSON at byte 15"),
        (b"{'text': 'hi'}", "not JSON at byte 1"),
        (b'{text: "hi"}', "not JSON at byte 1"),
        (b'{"text": "a\nb"}', "not JSON at byte 11"),
        (b'{"text": "\\x"}', "not JSON at byte 10"),
        (b"[" * 100, "nested too deeply"),
    ],
)
def test_what_is_no_request_is_400_and_says_why(server, envoy, path, body, name):
    before = server.metric("renga_requests_total")
    status, error = error_of(envoy.post(path, body))
    assert (status, error.code) == (400, grpc.StatusCode.INVALID_ARGUMENT.value[0])
    assert name in error.message
    assert server.metric("renga_requests_total") == before


@pytest.mark.parametrize(
    "body",
    [
        b'\r\n{ "text" :\t"a\\"\\\\\\u00e9 \xc3\xa9\x7f {}[],:" , "n" : 1 ,"stop":["x" , "y"],"max_tokens":1}\n ',
        b'{"token_ids": {"ids": [1, 2,\n3]}, "sampling": {"temperature": -0.0e1}, "max_tokens": 1}',
        b'{"chat": {"messages": [{"role": "user", "content": ""}]}, "logprobs": null, "max_tokens": 1}',
    ],
)
def test_whatever_json_allows_is_taken(envoy, body):
    status, _, answer = envoy.post("generate:unary", body)
    assert status == 200, answer


def test_unknown_paths_and_query_parameters_are_refused(envoy):
    assert error_of(envoy.get("nothing"))[0] == 404
    assert error_of(envoy.get("generate"))[0] == 404
    status, error = error_of(envoy.get("load?verbose=1"))
    assert status == 400
    assert "verbose" in error.message
    # The names of gRPC are for gRPC.
    assert request(envoy.address, "POST", "/renga.v1.Inference/GetLoad", {})[0] == 404


def test_a_request_beyond_the_limit_is_413(envoy):
    status, error = error_of(envoy.post("generate", {"text": "x" * 9 * 2**20}))
    assert (status, error.code) == (413, grpc.StatusCode.RESOURCE_EXHAUSTED.value[0])


@BOTH
def test_a_full_server_is_429_with_the_time_to_come_back(server, envoy, path):
    with blocked(server):
        waiting = server.stub().Generate(text_request(max_tokens=2))
        eventually(lambda: load_of(server).waiting == 1, "a full queue")
        answer = envoy.post(path, GREEDY)
        waiting.cancel()
    status, error = error_of(answer)
    assert (status, error.code) == (429, grpc.StatusCode.RESOURCE_EXHAUSTED.value[0])
    retry = error_details_pb2.RetryInfo()
    assert error.details[0].Unpack(retry)
    assert retry.retry_delay.ToNanoseconds() > 0


@BOTH
def test_the_deadline_is_a_header(server, envoy, path):
    with blocked(server):
        answer = envoy.post(path, GREEDY, grpc_timeout="1S")
    status, error = error_of(answer)
    assert (status, error.code) == (504, grpc.StatusCode.DEADLINE_EXCEEDED.value[0])


def test_keys_are_asked_for(start, tiny_model, envoy_for, tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("somebody secret-key-of-somebody\n")
    keys.chmod(0o600)
    envoy = envoy_for(start(tiny_model, "--auth.keys_file", str(keys)).wait_ready())
    assert error_of(envoy.post("generate", GREEDY))[0] == 401
    assert error_of(envoy.get("model"))[0] == 401
    key = {"authorization": "Bearer secret-key-of-somebody"}
    assert envoy.post("generate", GREEDY, **key)[0] == 200


# ---- Streams that do not end well -------------------------------------------------------------


def send(envoy, path, body, *headers, **options):
    """A connection on which the request is sent and nothing is read."""
    connection = raw_connection(envoy.address, **options)
    connection.sendall(http_bytes(f"/renga/v1/{path}", body, *headers))
    return connection


def test_a_client_that_leaves_frees_its_sequence(server, envoy):
    connection = send(envoy, "generate", LONG, receive_buffer=4096)
    assert connection.recv(64).startswith(b"HTTP/1.1 200")
    cancelled = server.metric("renga_cancellations_total")
    assert not server.idle()
    connection.close()
    eventually(server.idle, "idle")
    assert server.metric("renga_cancellations_total") == cancelled + 1


def test_a_client_that_leaves_while_it_waits_is_forgotten(server, envoy):
    with blocked(server):
        connection = send(envoy, "generate:unary", GREEDY)
        eventually(lambda: load_of(server).waiting == 1, "one waits")
        connection.close()
        eventually(lambda: load_of(server).waiting == 0, "nobody waits")


def test_a_stream_that_fails_half_way_has_no_finished_and_says_why_in_its_trailers(server, envoy):
    connection = send(envoy, "generate", LONG, "X-Request-Id: mid", receive_buffer=4096)
    with contextlib.closing(connection):
        text = connection.recv(64)
        assert text.startswith(b"HTTP/1.1 200")
        cancelled = envoy.post("cancel", {"request_ids": ["mid"]})
        assert json.loads(cancelled[2]) == {"cancelled": "1"}
        while b"grpc-status: " not in text[-500:]:
            more = connection.recv(65536)
            assert more, text[-500:]
            text += more
    code = grpc.StatusCode.CANCELLED.value[0]
    assert f"\r\n0\r\ngrpc-status: {code}\r\n".encode() in text
    assert b'"chunk"' in text
    assert b'"finished"' not in text
    eventually(server.idle, "idle")


# ---- gRPC, and several instances ----------------------------------------------------------------


def test_grpc_goes_through_as_it_is(server, envoy):
    stub = server.stub(server.channel(address=envoy.address))
    same = text_request(sampling={"temperature": 0}, max_tokens=12)
    answer = Answer(stub.Generate(same))
    answer.assert_equals_unary(server.stub().GenerateUnary(same))
    error = refused(stub.GenerateUnary, text_request(model="other"))
    assert error.code() == grpc.StatusCode.NOT_FOUND


def test_a_server_that_starts_again_is_found_again(start, tiny_model, envoy_for):
    server = start(tiny_model).wait_ready()
    envoy = envoy_for(server)
    before = envoy.post("generate:unary", GREEDY)
    server.stop()
    status, error = error_of(envoy.post("generate:unary", GREEDY))
    assert (status, error.code) == (503, grpc.StatusCode.UNAVAILABLE.value[0])
    with grpc.insecure_channel(envoy.address) as channel:
        error = refused(pb_grpc.InferenceStub(channel).GetLoad, pb.GetLoadRequest())
        assert error.code() == grpc.StatusCode.UNAVAILABLE
        assert not error.details().startswith("{")
    start(tiny_model, "--grpc.address", server.grpc_address).wait_ready()
    eventually(lambda: envoy.post("generate:unary", GREEDY)[0] == 200, "an answer again")
    again = envoy.post("generate:unary", GREEDY)
    assert json.loads(again[2])["text"] == json.loads(before[2])["text"]


def served(server):
    return server.metric("renga_requests_total", outcome="ok")


def test_a_session_stays_at_its_instance_until_that_is_gone(start, tiny_model, envoy_for):
    servers = [start(tiny_model) for _ in range(2)]
    for server in servers:
        server.wait_ready()
    envoy = envoy_for(*servers)

    def at(session):
        """Which instance answers a request of the session."""
        before = [served(s) for s in servers]
        assert envoy.post("generate:unary", GREEDY, x_session_id=session)[0] == 200
        grown = [served(s) > b for s, b in zip(servers, before)]
        assert sum(grown) == 1
        return grown.index(True)

    sessions = [f"session-{i}" for i in range(12)]
    homes = {session: at(session) for session in sessions}
    assert set(homes.values()) == {0, 1}
    assert {session: at(session) for session in sessions} == homes
    # One dies: its sessions are served by the other at once, nobody sees an error...
    dead = servers[0]
    count = served(servers[1])
    dead.stop()
    for session in sessions:
        assert envoy.post("generate:unary", GREEDY, x_session_id=session)[0] == 200
    assert served(servers[1]) == count + len(sessions)
    # ... and come home when it is back.
    servers[0] = start(tiny_model, "--grpc.address", dead.grpc_address).wait_ready()
    envoy.wait_for_instances(2)
    assert {session: at(session) for session in sessions} == homes


def test_an_instance_that_drains_is_left_in_peace(start, tiny_model, envoy_for):
    """It refuses what is new; Envoy asks the other one, and no client sees it."""
    servers = [
        start(tiny_model, "--grpc.write_timeout_ms", "600000", "--drain.timeout_ms", "600000")
        for _ in range(2)
    ]
    for server in servers:
        server.wait_ready()
    envoy = envoy_for(*servers)
    calls = block(servers[0])
    servers[0].terminate()
    servers[0].wait_event("draining")
    for i in range(20):
        for path in ("generate", "generate:unary"):
            status, _, text = envoy.post(path, GREEDY, x_session_id=f"session-{i}")
            assert status == 200, text
    for call in calls:
        call.cancel()
    assert servers[0].wait_exit() == 0
