"""The chat load of many users: short messages, a moment of thought, 16 tokens of answer.

  locust -f bench/locust/locustfile.py --host http://127.0.0.1:8080 HttpChatUser
  locust -f bench/locust/locustfile.py --grpc-address 127.0.0.1:50051 GrpcChatUser

HttpChatUser asks the OpenAI API of the gateway, GrpcChatUser the gRPC API; both read streams.
Three times are reported for each answer: `response` (sent to whole answer), `first token` and
`worst gap` (between two pieces of text). scripts/load_test.sh runs it beside a server of its own.

--record FILE keeps every answer's exact times (Locust rounds to two digits), and how late and
how busy this process was: what it adds to the times that it measures.
"""

import json
import pathlib
import random
import sys
import time

import gevent
import grpc
import grpc.experimental.gevent
from locust import FastHttpUser, User, between, events, task

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1] / "proto")]
import messages  # noqa: E402

# Before the first channel: gRPC then waits as a greenlet, not as the whole process.
grpc.experimental.gevent.init_gevent()

TIMEOUT_S = 120.0
LAG_PERIOD_S = 0.02


@events.init_command_line_parser.add_listener
def add_options(parser):
    group = parser.add_argument_group("renga")
    group.add_argument("--grpc-address", default="127.0.0.1:50051", help="of GrpcChatUser")
    group.add_argument("--max-tokens", type=int, default=16, help="of each answer")
    group.add_argument("--chinese", type=float, default=0.5, help="share of messages in Chinese")
    group.add_argument("--seed", type=int, default=1, help="of the messages")
    group.add_argument("--record", default="", help="file for all times, as JSON")


# ---- What is kept for the record -------------------------------------------------------------


class Record:
    """Every answer's times, and this process's own lateness."""

    def __init__(self):
        self.answers = []
        self.failures = 0
        self.lags_ms = []
        self._begin = time.monotonic()
        self._cpu = time.process_time()

    def watch_lateness(self):
        """A greenlet that wants to wake up every LAG_PERIOD_S; what it waits longer, all wait."""
        while True:
            begin = time.monotonic()
            gevent.sleep(LAG_PERIOD_S)
            self.lags_ms.append(1000 * (time.monotonic() - begin - LAG_PERIOD_S))

    def write(self, path):
        seconds = time.monotonic() - self._begin
        content = {
            "seconds": seconds,
            "cpu_share": (time.process_time() - self._cpu) / seconds,
            "failures": self.failures,
            "lags_ms": self.lags_ms,
            "answers": self.answers,
        }
        pathlib.Path(path).write_text(json.dumps(content))


record = None


@events.test_start.add_listener
def begin_record(environment, **_):
    global record
    record = Record()
    gevent.spawn(record.watch_lateness)


@events.quitting.add_listener
def end_record(environment, **_):
    if environment.parsed_options.record and record:
        record.write(environment.parsed_options.record)


# ---- The users -------------------------------------------------------------------------------


class Answer:
    """The times of one answer, measured from its making."""

    def __init__(self):
        self.begin = self.last = time.perf_counter()
        self.first_ms = None  # Stays so if the first token ends the answer.
        self.gap_ms = 0.0
        self.characters = 0
        self.server_ms = None  # What the server says that it took.

    def add(self, text):
        now = time.perf_counter()
        if self.first_ms is None:
            self.first_ms = 1000 * (now - self.begin)
        else:
            self.gap_ms = max(self.gap_ms, 1000 * (now - self.last))
        self.last = now
        self.characters += len(text)


class ChatUser(User):
    """Asks, reads the whole answer, thinks, and asks again. `ask` is the protocol's own."""

    abstract = True
    wait_time = between(0.5, 1.5)
    protocol = ""
    _count = 0

    def on_start(self):
        ChatUser._count += 1
        self.options = self.environment.parsed_options
        self.dice = random.Random(self.options.seed * 100003 + ChatUser._count)

    @task
    def chat(self):
        language = "chinese" if self.dice.random() < self.options.chinese else "english"
        text = messages.message(self.dice, language)
        answer = Answer()
        failure = None
        try:
            self.ask(text, answer)
        except (RuntimeError, OSError, ValueError, grpc.RpcError) as error:
            failure = error
        response_ms = 1000 * (time.perf_counter() - answer.begin)
        self.fire("response", response_ms, answer.characters, failure)
        if failure is not None:
            record.failures += 1
            return
        if answer.first_ms is not None:
            self.fire("first token", answer.first_ms)
            self.fire("worst gap", answer.gap_ms)
        record.answers.append(
            {
                "protocol": self.protocol,
                "language": language,
                "response_ms": response_ms,
                "first_token_ms": answer.first_ms,
                "worst_gap_ms": answer.gap_ms,
                "server_ms": answer.server_ms,
            }
        )

    def fire(self, what, milliseconds, length=0, failure=None):
        self.environment.events.request.fire(
            request_type=self.protocol,
            name=what,
            response_time=milliseconds,
            response_length=length,
            exception=failure,
            context={},
        )

    def ask(self, text, answer):
        raise NotImplementedError


class HttpChatUser(ChatUser, FastHttpUser):
    """The OpenAI API, /v1/chat/completions, as server-sent events."""

    host = "http://127.0.0.1:8080"
    protocol = "HTTP"
    connection_timeout = network_timeout = TIMEOUT_S

    def ask(self, text, answer):
        body = {
            "model": "default",
            "messages": [{"role": "user", "content": text}],
            "temperature": 0,
            "max_tokens": self.options.max_tokens,
            "stream": True,
        }
        # The client's own event is not wanted: it would fire when the headers are there.
        response = self.client.client.urlopen(
            self.client.base_url + "/v1/chat/completions",
            method="POST",
            payload=json.dumps(body),
            headers={"Content-Type": "application/json"},
        )
        if response.status_code != 200:
            raise RuntimeError(f"status {response.status_code}: {response.text}")
        while line := response.stream.readline(b"\n"):
            if not line.startswith(b"data:"):
                continue
            data = line[5:].strip()
            if data == b"[DONE]":
                response.stream.read()  # To the end: the connection is used again.
                return
            self._take(json.loads(data), answer)
        raise RuntimeError("the stream was cut")

    @staticmethod
    def _take(chunk, answer):
        if "error" in chunk:
            raise RuntimeError(chunk["error"]["message"])
        for choice in chunk.get("choices", ()):
            if text := choice.get("delta", {}).get("content"):
                answer.add(text)
        if timings := chunk.get("timings"):
            answer.server_ms = sum(timings[k] for k in ("queue_ms", "prefill_ms", "decode_ms"))


class GrpcChatUser(ChatUser):
    """The gRPC API, renga.v1.Inference/Generate."""

    protocol = "gRPC"

    def on_start(self):
        super().on_start()
        self.pb, services = grpc.protos_and_services("renga/v1/inference.proto")
        # A connection of its own, as a user elsewhere has.
        self.channel = grpc.insecure_channel(
            self.options.grpc_address, options=(("grpc.use_local_subchannel_pool", 1),)
        )
        self.stub = services.InferenceStub(self.channel)

    def on_stop(self):
        self.channel.close()

    def ask(self, text, answer):
        request = self.pb.GenerateRequest(
            chat=self.pb.Chat(messages=[self.pb.ChatMessage(role="user", content=text)]),
            sampling=self.pb.SamplingParams(temperature=0),
            max_tokens=self.options.max_tokens,
        )
        finished = False
        for event in self.stub.Generate(request, timeout=TIMEOUT_S):
            if event.chunk.text:
                answer.add(event.chunk.text)
            if event.HasField("finished"):
                finished = True
                timings = event.finished.timings
                answer.server_ms = 0.001 * (
                    timings.queue_us + timings.prefill_us + timings.decode_us
                )
        if not finished:
            raise RuntimeError("the stream was cut")
