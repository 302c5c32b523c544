"""Sends one chat message to a running server and prints the answer as it comes.

    chat_once.py [--address HOST:PORT] [--max-tokens N] [--key-file FILE] [--quiet] [MESSAGE]

It is greedy, so equal servers print equal answers. --quiet prints nothing but the answer.
A server that wants a key (auth.keys_file) gets the one that stands alone in --key-file.
"""

import argparse
import sys
import time
from pathlib import Path

import grpc

PROTO_DIR = Path(__file__).resolve().parents[1] / "proto"


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--address", default="127.0.0.1:50051")
    parser.add_argument("--max-tokens", type=int, default=64)
    parser.add_argument("--timeout", type=float, default=120.0, help="seconds for the whole answer")
    parser.add_argument("--key-file", type=Path)
    parser.add_argument("--quiet", action="store_true")
    parser.add_argument("message", nargs="?", default="What is a computer? Answer in one sentence.")
    return parser.parse_args()


def main():
    args = parse_args()
    # The stubs are made from the .proto on the fly: no generated code to keep.
    sys.path.insert(0, str(PROTO_DIR))
    pb, services = grpc.protos_and_services("renga/v1/inference.proto")
    request = pb.GenerateRequest(
        chat=pb.Chat(messages=[pb.ChatMessage(role="user", content=args.message)]),
        sampling=pb.SamplingParams(temperature=0),
        max_tokens=args.max_tokens,
    )
    if not args.quiet:
        print(f"user: {args.message}\nassistant: ", end="", flush=True)
    metadata = ()
    if args.key_file:
        metadata = (("authorization", f"Bearer {args.key_file.read_text().strip()}"),)
    begin = time.monotonic()
    first = finished = None
    with grpc.insecure_channel(args.address) as channel:
        try:
            stub = services.InferenceStub(channel)
            for event in stub.Generate(request, timeout=args.timeout, metadata=metadata):
                if event.HasField("chunk"):
                    first = first or time.monotonic()
                    print(event.chunk.text, end="", flush=True)
                elif event.HasField("finished"):
                    finished = event.finished
        except grpc.RpcError as error:
            sys.exit(f"\nchat_once.py: {error.code().name}: {error.details()}")
    print()
    if finished is None or not finished.usage.completion_tokens:
        sys.exit("chat_once.py: the stream ended without an answer")
    if not args.quiet:
        total = time.monotonic() - begin
        print(
            f"({finished.usage.prompt_tokens} + {finished.usage.completion_tokens} tokens, "
            f"first after {((first or begin) - begin) * 1000:.0f} ms, all after {total * 1000:.0f} ms)"
        )


if __name__ == "__main__":
    main()
