"""A real `renga serve` process and real gRPC clients.

  pip install -r tests/clients/requirements.txt
  RENGA_BINARY=build/release/bin/renga pytest tests/clients

The model is RENGA_MODEL (a GGUF file), or else a tiny random one that the program
RENGA_MAKE_TINY_MODEL (default: make_tiny_model of the build folder that RENGA_BINARY lies
in) writes. Some tests need models of a certain shape and always make them. The stubs are
generated from proto/ on the way.
"""

import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

ROOT = pathlib.Path(__file__).resolve().parents[2]
PATIENCE = 60.0  # Seconds for anything that must happen; only a hang reaches it.


def _generate_stubs():
    import grpc_tools
    from grpc_tools import protoc

    out = tempfile.mkdtemp(prefix="renga_stubs_")
    arguments = [
        "protoc",
        f"-I{ROOT / 'proto'}",
        f"-I{pathlib.Path(grpc_tools.__file__).parent / '_proto'}",
        f"--python_out={out}",
        f"--grpc_python_out={out}",
        "renga/v1/inference.proto",
        "renga/v1/admin.proto",
        "google/api/annotations.proto",
        "google/api/http.proto",
        "google/rpc/status.proto",
        "google/rpc/error_details.proto",
    ]
    if protoc.main(arguments) != 0:
        raise RuntimeError("protoc failed")
    sys.path.insert(0, out)


_generate_stubs()
from google.rpc import error_details_pb2, status_pb2  # noqa: E402
from renga.v1 import admin_pb2, admin_pb2_grpc  # noqa: E402
from renga.v1 import inference_pb2 as pb  # noqa: E402
from renga.v1 import inference_pb2_grpc as pb_grpc  # noqa: E402


def _binary():
    path = os.environ.get("RENGA_BINARY")
    if not path or not os.access(path, os.X_OK):
        pytest.exit("RENGA_BINARY must name the renga program", returncode=2)
    return str(pathlib.Path(path).resolve())


def _clean_environment():
    """Without RENGA_...: the server would take those for settings."""
    return {k: v for k, v in os.environ.items() if not k.startswith("RENGA_")}


def make_tiny_model(path, **options):
    """Writes a tiny model; options as make_tiny_model has them, e.g. layers=2."""
    maker = os.environ.get("RENGA_MAKE_TINY_MODEL")
    if not maker:
        found = list(pathlib.Path(_binary()).parents[1].rglob("make_tiny_model"))
        found = [p for p in found if p.is_file() and os.access(p, os.X_OK)]
        if not found:
            pytest.exit("RENGA_MAKE_TINY_MODEL must name the make_tiny_model program", 2)
        maker = str(found[0])
    arguments = [maker, str(path)]
    for name, value in options.items():
        arguments += [f"--{name}", str(value)]
    subprocess.run(arguments, check=True)
    return str(path)


class Server:
    """One process of `renga serve` on free ports."""

    def __init__(self, model, *flags, environment=None, through=()):
        # `through`: a program that starts it, and its arguments.
        command = [*through, _binary(), "serve", "--model.path", model, "--log.format", "json"]
        names = flags[::2]
        addresses = ("--grpc.address", "--gateway.address", "--admin.address", "--admin.grpc_address")
        for name in addresses:
            if name not in names:
                command += [name, "127.0.0.1:0"]
        command += flags
        self.lines = []
        self._changed = threading.Condition()
        self._closed = False
        self.process = subprocess.Popen(
            command,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            env={**_clean_environment(), **(environment or {})},
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self._channels = []

    def _read(self):
        for line in self.process.stderr:
            with self._changed:
                self.lines.append(line.rstrip("\n"))
                self._changed.notify_all()
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def events(self):
        found = []
        for line in list(self.lines):
            try:
                found.append(json.loads(line))
            except ValueError:
                pass
        return found

    def wait_event(self, name):
        """The first log line with that event; fails if the process ends without it."""
        end = time.monotonic() + PATIENCE
        with self._changed:
            while True:
                for event in self.events():
                    if event.get("event") == name:
                        return event
                if self._closed or time.monotonic() > end:
                    raise AssertionError(f"no event {name} in:\n" + "\n".join(self.lines))
                self._changed.wait(1.0)

    def wait_listening(self):
        event = self.wait_event("listening")
        self.grpc_address = event["grpc"]
        self.admin_address = event["admin"]
        self.admin_grpc_address = event["admin_grpc"]
        return self

    def wait_ready(self):
        self.wait_listening()
        self.wait_event("ready")
        return self

    def channel(self, *options, address=None):
        """A connection of its own."""
        channel = grpc.insecure_channel(
            address or self.grpc_address,
            options=(("grpc.use_local_subchannel_pool", 1), *options),
        )
        self._channels.append(channel)
        return channel

    def slow_channel(self):
        """A client that takes little from the network beyond what it has read."""
        return self.channel(
            ("grpc.http2.bdp_probe", 0), ("grpc.http2.lookahead_bytes", 1024)
        )

    def stub(self, channel=None):
        return pb_grpc.InferenceStub(channel or self.channel())

    def admin(self):
        return admin_pb2_grpc.AdminStub(self.channel(address=self.admin_grpc_address))

    def check(self, service=""):
        stub = health_pb2_grpc.HealthStub(self.channel())
        answer = stub.Check(
            health_pb2.HealthCheckRequest(service=service), timeout=PATIENCE
        )
        return health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status)

    def get(self, path):
        """(status, body) of the admin listener."""
        try:
            with urllib.request.urlopen(
                f"http://{self.admin_address}{path}", timeout=PATIENCE
            ) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def metric(self, name, **labels):
        """The sum of all samples of a metric that have these labels."""
        wanted = [f'{label}="{value}"' for label, value in labels.items()]
        total = 0.0
        for line in self.get("/metrics")[1].splitlines():
            if line.split("{")[0].split(" ")[0] == name and all(w in line for w in wanted):
                total += float(line.rsplit(" ", 1)[1])
        return total

    def idle(self):
        """Nothing runs or waits, and no sequence holds a KV page."""
        return not any(
            self.metric(f"renga_{gauge}")
            for gauge in ("requests_running", "requests_waiting", "kv_pages_used")
        )

    def terminate(self):
        self.process.send_signal(signal.SIGTERM)

    def wait_exit(self):
        code = self.process.wait(timeout=PATIENCE)
        self._reader.join(PATIENCE)
        return code

    def stop_alive(self):
        """Stops it; fails if it had ended by itself."""
        code = self.process.poll()
        self.stop()
        assert code is None, f"ended with {code}:\n" + "\n".join(self.lines[-50:])

    def stop(self):
        for channel in self._channels:
            channel.close()
        if self.process.poll() is None:
            self.process.kill()
        self.wait_exit()


def text_request(text="hi", sampling=None, **fields):
    """A request for plain text; `sampling`: a dict of sampling parameters."""
    return pb.GenerateRequest(
        text=text, sampling=pb.SamplingParams(**(sampling or {})), **fields
    )


def refused(call, *arguments, **options):
    """The error with which a call must end."""
    with pytest.raises(grpc.RpcError) as caught:
        call(*arguments, **options)
    return caught.value


def load_of(server):
    return server.stub().GetLoad(pb.GetLoadRequest())


def in_threads(tasks):
    """Runs all at the same time; their results in order."""
    results = [None] * len(tasks)

    def run(i):
        results[i] = tasks[i]()

    threads = [threading.Thread(target=run, args=(i,)) for i in range(len(tasks))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
        assert not thread.is_alive(), "a call hangs"
    return results


def eventually(predicate, what):
    end = time.monotonic() + PATIENCE
    while not predicate():
        if time.monotonic() > end:
            raise AssertionError(f"never: {what}")
        time.sleep(0.01)


def stalled_stream(server, *metadata):
    """A long answer of which one message is read: it pauses and cannot end by itself."""
    call = server.stub(server.slow_channel()).Generate(
        text_request(max_tokens=4000, ignore_end_token=True), metadata=metadata
    )
    return call, next(call)


def block(server, places=1):
    """Stalls streams until a server of so many places (max_sequences) starts nothing more.

    A stalled stream gives its place away, as long as no more of them than places stall.
    """
    return [stalled_stream(server)[0] for _ in range(places + 1)]


def details_of(error, kind):
    """The google.rpc message of that kind in an error's details, or None."""
    for name, value in error.trailing_metadata() or ():
        if name == "grpc-status-details-bin":
            for detail in status_pb2.Status.FromString(value).details:
                message = kind()
                if detail.Unpack(message):
                    return message
    return None


class Answer:
    """A whole stream, or as much of it as came before an error."""

    def __init__(self, call):
        self.started = None
        self.finished = None
        # Of all choices together, and by choice as GenerateUnary has them.
        self.text = ""
        self.token_ids = []
        self.choices = {}
        self.ends = []
        self.chunks = []
        self.order = []
        self.error = None
        try:
            for message in call:
                self.add(message)
        except grpc.RpcError as error:
            self.error = error

    def add(self, message):
        event = message.WhichOneof("event")
        self.order.append(event)
        if event == "started":
            self.started = message.started
        elif event == "chunk":
            self.chunks.append(message.chunk)
            self.text += message.chunk.text
            self.token_ids += message.chunk.token_ids
            choice = self.choices.setdefault(message.chunk.choice, pb.Choice())
            choice.choice = message.chunk.choice
            choice.text += message.chunk.text
            choice.token_ids.extend(message.chunk.token_ids)
            choice.logprobs.extend(message.chunk.logprobs)
        elif event == "choice_finished":
            self.ends.append(message.choice_finished)
        else:
            self.finished = message.finished

    def assert_equals_unary(self, unary):
        """The stream joined together is the unary answer, choice by choice."""
        assert self.error is None, self.error
        first = pb.Choice(text=unary.text, token_ids=unary.token_ids, logprobs=unary.logprobs)
        for choice in (first, *unary.more_choices):
            empty = pb.Choice(choice=choice.choice)
            assert self.choices.get(choice.choice, empty) == choice
        assert len(unary.more_choices) == len(self.finished.choices) - 1
        assert self.finished.finish_reason == unary.finished.finish_reason
        assert self.finished.stop_cause == unary.finished.stop_cause
        assert self.finished.stop_text == unary.finished.stop_text
        assert list(self.finished.choices) == list(unary.finished.choices)
        mine, theirs = self.finished.usage, unary.finished.usage
        assert mine.prompt_tokens == theirs.prompt_tokens
        assert mine.completion_tokens == theirs.completion_tokens
        assert list(self.started.prompt_token_ids) == list(unary.started.prompt_token_ids)
        assert self.started.prompt_text == unary.started.prompt_text
        assert list(self.started.prompt_logprobs) == list(unary.started.prompt_logprobs)

    def same_tokens(self, other):
        return (self.text, self.token_ids) == (other.text, other.token_ids)


@pytest.fixture(scope="session")
def model(tmp_path_factory):
    given = os.environ.get("RENGA_MODEL")
    if given:
        return given
    path = tmp_path_factory.mktemp("models") / "tiny.gguf"
    return make_tiny_model(path, context=4096)


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory):
    path = tmp_path_factory.mktemp("models") / "tiny.gguf"
    return make_tiny_model(path, context=4096)


@pytest.fixture
def start():
    """start(model, flag, value, ...) -> Server, stopped at the end of the test."""
    servers = []

    def start_one(*arguments, **options):
        servers.append(Server(*arguments, **options))
        return servers[-1]

    yield start_one
    for server in servers:
        server.stop()


@pytest.fixture(scope="module")
def server(model):
    """One server for the tests of a module that leave it as it was."""
    running = Server(model).wait_ready()
    yield running
    running.stop_alive()
