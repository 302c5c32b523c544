"""What the HTTP gateway adds to the time to the first token, with many streams at once.

    gateway_ttft.py --binary build/release/bin/renga --model FILE [--streams 32] [--rounds 6]

Starts a server with its gateway and keeps `--streams` streams going over each of the two
ways in turn, gRPC and HTTP, for some rounds. The server says of each request how long it
waited and computed (queue and prefill); what the client saw beyond that is the way there
and back: for HTTP the gateway, its call of the server, the network and the client itself,
and on a busy machine the wait for a core. Printed: median and P90 of both, and what the
gateway adds: HTTP minus gRPC. Goal: below 1 ms. The HTTP figure alone is the most that it
can have added, whatever the clients cost.

The HTTP client is a plain socket loop, so that little of the time is its own; the gRPC one
is Python's, with a thread for each stream, and heavier: a difference below 0 is the
clients'. Needs grpcio and grpcio-tools: build/venv/bin/python has them.
"""

import argparse
import json
import random
import re
import selectors
import signal
import socket
import statistics
import subprocess
import sys
import threading
import time
from os import environ
from pathlib import Path

import grpc

PROTO_DIR = Path(__file__).resolve().parents[2] / "proto"
sys.path.insert(0, str(PROTO_DIR))
pb, services = grpc.protos_and_services("renga/v1/inference.proto")


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--binary", required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--streams", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=6, help="requests of each stream")
    parser.add_argument("--answer", type=int, default=16, help="tokens")
    return parser.parse_args()


class Server:
    """A fresh `renga serve` on free ports, ready when constructed."""

    def __init__(self, args):
        command = [args.binary, "serve", "--model.path", args.model]
        for name in ("grpc", "gateway", "admin"):
            command += [f"--{name}.address", "127.0.0.1:0"]
        command += ["--admin.grpc_address", "127.0.0.1:0"]
        clean = {k: v for k, v in environ.items() if not k.startswith("RENGA_")}
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=clean)
        for line in self.process.stderr:
            if found := re.search(r" listening grpc=(\S+).* gateway=(\S+)", line):
                self.grpc, self.http = found[1], found[2]
            if " ready " in line:
                break
        else:
            sys.exit("gateway_ttft.py: the server did not become ready")
        # Nobody may block it by not reading.
        threading.Thread(target=self.process.stderr.read, daemon=True).start()

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(timeout=60)


def prompt(rng):
    return "Tell me about " + " ".join(rng.choice(["red", "green", "dogs", "cats"]) for _ in range(8))


def over_grpc(args, server, rng):
    """Milliseconds beyond the server's own time, of each request."""
    beyond = []
    prompts = [[prompt(rng) for _ in range(args.rounds)] for _ in range(args.streams)]

    def stream(mine):
        with grpc.insecure_channel(server.grpc, [("grpc.use_local_subchannel_pool", 1)]) as channel:
            grpc.channel_ready_future(channel).result(timeout=60)
            stub = services.InferenceStub(channel)
            for text in mine:
                request = pb.GenerateRequest(
                    text=text, max_tokens=args.answer, ignore_end_token=True
                )
                begin = time.perf_counter()
                first = None
                for event in stub.Generate(request, timeout=120):
                    first = first or time.perf_counter()
                    if event.HasField("started"):
                        own = (event.started.queue_us + event.started.prefill_us) / 1000
                beyond.append(1000 * (first - begin) - own)

    threads = [threading.Thread(target=stream, args=(mine,)) for mine in prompts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return beyond


class HttpStream:
    """One connection that asks again as soon as it has its answer."""

    def __init__(self, args, server, rng):
        self.args = args
        self.rng = rng
        self.left = args.rounds
        host, port = server.http.rsplit(":", 1)
        self.socket = socket.create_connection((host, int(port)))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.beyond = []
        self.ask()

    def ask(self):
        body = json.dumps(
            {
                "prompt": prompt(self.rng),
                "max_tokens": self.args.answer,
                "ignore_eos": True,
                "stream": True,
            }
        ).encode()
        head = (
            "POST /v1/completions HTTP/1.1\r\nHost: bench\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\n\r\n"
        )
        self.left -= 1
        self.text = b""
        self.first = None
        self.begin = time.perf_counter()
        self.socket.sendall(head.encode() + body)

    def read(self):
        """False: it is done for good."""
        data = self.socket.recv(65536)
        self.first = self.first or time.perf_counter()
        self.text += data
        if not data or not self.text.startswith(b"HTTP/1.1 200"):
            sys.exit(f"gateway_ttft.py: refused: {self.text.decode()}")
        if not self.text.endswith(b"\r\n0\r\n\r\n"):
            return True
        timings = json.loads(re.search(rb'"timings":(\{[^}]*\})', self.text)[1])
        own = timings["queue_ms"] + timings["prefill_ms"]
        self.beyond.append(1000 * (self.first - self.begin) - own)
        if self.left == 0:
            return False
        self.ask()
        return True


def over_http(args, server, rng):
    with selectors.DefaultSelector() as ready:
        streams = [HttpStream(args, server, rng) for _ in range(args.streams)]
        for one in streams:
            ready.register(one.socket, selectors.EVENT_READ, one)
        going = len(streams)
        while going:
            for key, _ in ready.select():
                if not key.data.read():
                    ready.unregister(key.fileobj)
                    key.fileobj.close()
                    going -= 1
    return [value for one in streams for value in one.beyond]


def main():
    args = parse_args()
    rng = random.Random(1)
    server = Server(args)
    try:
        over_http(args, server, rng)  # Thrown away: both sides are warm then.
        direct, gateway = [], []
        for _ in range(2):
            direct += over_grpc(args, server, rng)
            gateway += over_http(args, server, rng)
    finally:
        server.stop()
    print(f"{args.streams} streams, ms of the first token beyond the server's queue and prefill")
    for name, values in (("gRPC", direct), ("HTTP", gateway)):
        values.sort()
        p90 = values[int(0.9 * len(values))]
        print(f"  {name}: median {statistics.median(values):.2f}, P90 {p90:.2f}, n {len(values)}")
    added = statistics.median(gateway)
    difference = added - statistics.median(direct)
    print(f"  HTTP minus gRPC: {difference:.2f} ms (goal: below 1); at most {added:.2f} ms")


if __name__ == "__main__":
    main()
