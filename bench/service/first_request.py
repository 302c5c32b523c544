"""What the first request after `ready` costs, over what later ones cost.

    first_request.py --binary build/release/bin/renga --model FILE [--starts 5] [--later 8]

Starts a fresh server `--starts` times. As soon as it is ready, it gets equal-sized requests
one after another (fresh token ids each, so that no cached prefix helps), each as the first
call of a connection of its own that is already open, so that what a client pays for its
first call counts in all of them alike. Measured: the time to the first token and to the end. Printed: per start and over all of them, the first request's times and its ratio
to the median of the later ones. The client has warmed itself on an extra start that is
thrown away. Goal: at most 1.2.

Needs grpcio and grpcio-tools: build/venv/bin/python has them.
"""

import argparse
import os
import random
import re
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path

import grpc

PROTO_DIR = Path(__file__).resolve().parents[2] / "proto"
sys.path.insert(0, str(PROTO_DIR))
pb, services = grpc.protos_and_services("renga/v1/inference.proto")


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--binary", required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--starts", type=int, default=5)
    parser.add_argument("--later", type=int, default=8, help="requests after the first")
    parser.add_argument("--prompt", type=int, default=48, help="tokens; 0: a chat message")
    parser.add_argument("--vocab", type=int, default=40000, help="token ids are below this")
    parser.add_argument("--answer", type=int, default=16, help="tokens")
    parser.add_argument("--server", default="", help="more flags for the server")
    return parser.parse_args()


class Server:
    """A fresh `renga serve` on free ports, ready when constructed."""

    def __init__(self, args):
        free = ["--grpc.address", "--admin.address", "--admin.grpc_address"]
        command = [args.binary, "serve", "--model.path", args.model]
        for name in free:
            command += [name, "127.0.0.1:0"]
        environment = {k: v for k, v in os.environ.items() if not k.startswith("RENGA_")}
        self.process = subprocess.Popen(
            command + args.server.split(), stderr=subprocess.PIPE, text=True, env=environment
        )
        for line in self.process.stderr:
            found = re.search(r" listening grpc=(\S+)", line)
            if found:
                self.address = found[1]
            if " ready " in line:
                return
        sys.exit("first_request.py: the server did not become ready")

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.communicate(timeout=60)


def make_request(args, rng):
    request = pb.GenerateRequest(
        sampling=pb.SamplingParams(temperature=0),
        max_tokens=args.answer,
        ignore_end_token=True,
    )
    if args.prompt > 0:
        ids = [rng.randrange(args.vocab) for _ in range(args.prompt)]
        request.token_ids.ids.extend(ids)
    else:
        words = " ".join(rng.choice(["red", "green", "blue", "dog", "cat"]) for _ in range(12))
        request.chat.messages.add(role="user", content=words)
    return request


def measure(address, request):
    """Milliseconds to the first token and to the end, on a connection that is open."""
    options = [("grpc.use_local_subchannel_pool", 1)]
    with grpc.insecure_channel(address, options) as channel:
        grpc.channel_ready_future(channel).result(timeout=60)
        stub = services.InferenceStub(channel)
        begin = time.perf_counter()
        first = None
        for event in stub.Generate(request, timeout=60):
            if first is None and event.HasField("chunk"):
                first = time.perf_counter()
        end = time.perf_counter()
    return 1000 * ((first or end) - begin), 1000 * (end - begin)


def one_start(args, rng):
    server = Server(args)
    try:
        return [measure(server.address, make_request(args, rng)) for _ in range(1 + args.later)]
    finally:
        server.stop()


def main():
    args = parse_args()
    rng = random.Random(1)
    one_start(args, rng)
    ratios = []
    print("start  first token ms: first, later, ratio    whole ms: first, later, ratio")
    for start in range(args.starts):
        times = one_start(args, rng)
        row = f"{start + 1:5}"
        pair = []
        for which in (0, 1):
            first = times[0][which]
            later = statistics.median(t[which] for t in times[1:])
            pair.append(first / later)
            row += f"  {first:19.1f} {later:8.1f} {first / later:7.2f}"
        ratios.append(pair)
        print(row, flush=True)
    for name, which in (("first token", 0), ("whole answer", 1)):
        values = sorted(pair[which] for pair in ratios)
        print(
            f"{name}: first over later, median of {len(values)} starts "
            f"{statistics.median(values):.2f} (from {values[0]:.2f} to {values[-1]:.2f})"
        )


if __name__ == "__main__":
    main()
