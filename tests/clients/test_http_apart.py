"""`renga gateway`: the HTTP API in a process of its own, before one server or two."""

import json
import signal
import subprocess
import threading

import pytest
from conftest import Server, _binary, _clean_environment, eventually
from gateway_server import HttpServer, request

BODY = {"prompt": "Once upon", "max_tokens": 12, "seed": 5}


class Gateway(Server):
    """One process of `renga gateway`, watched as a server is."""

    def __init__(self, *targets):
        command = [_binary(), "gateway", "--log.format", "json"]
        command += ["--gateway.address", "127.0.0.1:0"]
        for target in targets:
            command += ["--target", target]
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

    def ask(self, body=None, **headers):
        return request(self.http_address, "POST", "/v1/completions", body or BODY, headers)


@pytest.fixture
def gateway():
    started = []

    def start(*targets):
        started.append(Gateway(*targets))
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


def test_sigterm_ends_it_with_status_0(server, gateway):
    apart = gateway(server.grpc_address)
    apart.process.send_signal(signal.SIGTERM)
    assert apart.wait_exit() == 0
