"""`renga gateway`: the HTTP API in a process of its own, before one server or two."""

import http.client
import json
import signal
import subprocess
import threading
import time

import pytest
from conftest import PATIENCE, Server, _binary, _clean_environment, eventually
from gateway_server import HttpServer, request, sse_data

BODY = {"prompt": "Once upon", "max_tokens": 12, "seed": 5}


class Gateway(Server):
    """One process of `renga gateway`, watched as a server is."""

    def __init__(self, *targets, flags=()):
        command = [_binary(), "gateway", "--log.format", "json"]
        command += ["--gateway.address", "127.0.0.1:0", "--admin.address", "127.0.0.1:0"]
        for target in targets:
            command += ["--target", target]
        command += flags
        self.lines = []
        self._changed = threading.Condition()
        self._closed = False
        self._channels = []
        self.process = subprocess.Popen(
            command,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            env=_clean_environment(),
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self.http_address = self.wait_event("listening")["gateway"]
        self.admin_address = self.wait_event("listening")["admin"]

    def ask(self, body=None, **headers):
        return request(self.http_address, "POST", "/v1/completions", body or BODY, headers)


@pytest.fixture
def gateway():
    started = []

    def start(*targets, **options):
        started.append(Gateway(*targets, **options))
        return started[-1]

    yield start
    for one in started:
        one.stop()


def text_of(answer):
    assert answer[0] == 200, answer
    return json.loads(answer[2])["choices"]


@pytest.fixture(scope="module")
def server(model):
    running = HttpServer(model).wait_ready()
    yield running
    running.stop_alive()


def test_apart_and_in_one_process_give_the_same_answer(server, gateway):
    apart = gateway(server.grpc_address)
    assert text_of(apart.ask()) == text_of(server.post("/v1/completions", BODY))


def test_without_a_server_it_says_so_and_finds_one_that_comes(start, tiny_model, gateway):
    first = start(tiny_model).wait_ready()
    apart = gateway(first.grpc_address)
    assert apart.ask()[0] == 200
    first.stop()
    assert apart.ask()[0] == 503
    assert request(apart.http_address, "GET", "/health")[0] == 503
    start(tiny_model, "--grpc.address", first.grpc_address).wait_ready()
    eventually(lambda: apart.ask()[0] == 200, "it finds the server again")


def test_the_other_server_answers_for_one_that_is_lost(start, tiny_model, gateway):
    servers = [start(tiny_model).wait_ready() for _ in range(2)]
    apart = gateway(*(one.grpc_address for one in servers))
    before = text_of(apart.ask())
    servers[0].stop()
    for _ in range(6):
        assert text_of(apart.ask()) == before


def test_the_other_server_answers_for_one_that_is_silent(start, tiny_model, server, gateway):
    frozen = start(tiny_model).wait_ready()
    apart = gateway(server.grpc_address, frozen.grpc_address)
    frozen.process.send_signal(signal.SIGSTOP)
    for stream in (False, True, False, True):
        assert apart.ask({**BODY, "stream": stream})[0] == 200
    apart.terminate()
    assert apart.wait_exit() == 0


def test_a_server_that_freezes_in_mid_answer_holds_nobody_for_ever(start, tiny_model, gateway):
    frozen = start(tiny_model).wait_ready()
    apart = gateway(frozen.grpc_address, flags=("--gateway.target_ping_ms", "1000"))
    body = {**BODY, "max_tokens": 3000, "stream": True}
    connection = http.client.HTTPConnection(apart.http_address, timeout=PATIENCE)
    connection.request(
        "POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"}
    )
    answer = connection.getresponse()
    assert answer.readline().startswith(b"data:")
    frozen.process.send_signal(signal.SIGSTOP)
    frozen_at = time.monotonic()
    rest = answer.read().decode()  # Ends, or times out.
    took = time.monotonic() - frozen_at
    connection.close()
    assert "error" in json.loads(sse_data(rest.lstrip())[-1])
    assert "[DONE]" not in rest
    assert took < 20  # Two pings of a second, and patience with the machine.


def test_a_lost_server_is_one_line_in_the_log_until_it_is_back(start, tiny_model, gateway):
    first = start(tiny_model).wait_ready()
    apart = gateway(first.grpc_address)
    assert apart.ask()[0] == 200
    first.stop()
    for _ in range(5):
        assert apart.ask()[0] == 503
    assert [e["event"] for e in apart.events()].count("target_unreachable") == 1
    start(tiny_model, "--grpc.address", first.grpc_address).wait_ready()
    eventually(lambda: apart.ask()[0] == 200, "it finds the server again")
    assert apart.wait_event("target_reachable")["target"] == first.grpc_address


def test_it_has_health_and_metrics_of_its_own(server, gateway):
    apart = gateway(server.grpc_address, flags=("--gateway.access_log", "info"))
    assert apart.ask()[0] == 200
    count = "renga_gateway_requests_total"
    eventually(lambda: apart.metric(count, route="/v1/completions", code=200) == 1, "counted")
    assert apart.get("/readyz")[0] == apart.get("/livez")[0] == 200
    line = apart.wait_event("http")
    assert (line["path"], line["status"], line["complete"]) == ("/v1/completions", 200, "yes")


def test_sigterm_ends_it_with_status_0(server, gateway):
    apart = gateway(server.grpc_address)
    apart.process.send_signal(signal.SIGTERM)
    assert apart.wait_exit() == 0
