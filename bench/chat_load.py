#!/usr/bin/env python3
"""Closed-loop chat load against any server with OpenAI's HTTP API, for side-by-side runs.

  chat_load.py --url http://127.0.0.1:8080 --users 50 --seconds 30 --think 0.5-1.5

Users who each keep one request in flight; every request is a fresh message of 50 to 100
characters (the last of a conversation of --turns messages), answered by streamed tokens. A
user thinks for --think seconds after each answer and after each refusal. Only the standard
library is used, so that the client costs the same whatever is measured.

Prints one JSON object. Counted is what ended inside the measured time, which begins after
--warmup: answers and tokens per second; p50, p95, p99 and the largest of the time to the
first token, of the longest gap between two tokens of an answer, and of the whole response,
in ms; how many were refused (429 or 503) and how soon; errors by kind. The exit status is 1
if nothing was answered.
"""

import argparse
import asyncio
import json
import math
import random
import re
import sys
import time
from dataclasses import dataclass
from urllib.parse import urlsplit

WORDS = (
    "order parcel invoice refund address account password delivery tomorrow morning payment card "
    "charged twice cancel subscription change date flight hotel booking weather forecast translate "
    "sentence german friendly short answer explain how works window battery phone screen broken "
    "warranty shop open sunday closest station ticket price child discount language support agent"
).split()
SHORTEST_PAUSE_S = 0.05  # After a failure; a server that is down is not asked in a tight loop.
REFUSALS = (429, 503)


class Failure(Exception):
    """Why a request got no whole answer; the text is the kind under which it is counted."""


class Refusal(Failure):
    """The server said at once that it has no room."""


@dataclass
class Attempt:
    """What became of one request. Times are in seconds."""

    end: float  # On the clock of time.perf_counter.
    total: float
    failure: str = ""  # Empty: answered.
    refused: bool = False
    first: float = 0.0
    gap: float = 0.0
    tokens: int = 0
    turn: int = 0


def parse_think(text):
    """'S' or 'LOW-HIGH' as (low, high)."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)(?:-(\d+(?:\.\d+)?))?", text)
    if not found:
        raise argparse.ArgumentTypeError(f"{text!r}: wanted are seconds, S or LOW-HIGH")
    low = float(found[1])
    high = float(found[2]) if found[2] else low
    if high < low:
        raise argparse.ArgumentTypeError(f"{text!r}: the first number is the smaller one")
    return low, high


def parse_object(text):
    try:
        value = json.loads(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"not JSON: {error}") from None
    if not isinstance(value, dict):
        raise argparse.ArgumentTypeError("wanted is a JSON object")
    return value


def make_message(rng):
    """A message of 50 to 100 characters that begins unlike every other one."""
    length = rng.randint(50, 100)
    text = f"{rng.randrange(10**6):06d} "
    while len(text) < length:
        text += rng.choice(WORDS) + " "
    # Cut, and filled up again where the cut left a space at the end.
    return text[:length].rstrip().ljust(length, ".")


def quantile(values, q):
    """The nearest-rank quantile of sorted values."""
    return values[max(0, math.ceil(q * len(values)) - 1)]


def quantiles_ms(seconds):
    values = sorted(seconds)
    if not values:
        return None
    names = {"p50": 0.5, "p95": 0.95, "p99": 0.99, "max": 1.0}
    return {name: round(1000 * quantile(values, q), 1) for name, q in names.items()}


# ---- HTTP ----------------------------------------------------------------------------------


async def read_head(reader):
    """(status, headers with lower-case names) of an HTTP answer."""
    status_line = await reader.readline()
    words = status_line.split()
    if len(words) < 2 or not words[1].isdigit():
        raise Failure("no HTTP answer")
    headers = {}
    while (line := await reader.readline()).strip():
        name, _, value = line.decode("latin-1").partition(":")
        headers[name.strip().lower()] = value.strip()
    return int(words[1]), headers


async def read_body(reader, headers):
    """The pieces of the body: chunked, of a known length, or until the connection ends."""
    if headers.get("transfer-encoding", "").lower() == "chunked":
        while True:
            size_line = await reader.readline()
            try:
                size = int(size_line.split(b";")[0], 16)
            except ValueError:
                raise Failure("stream cut") from None
            if size == 0:
                return
            yield await reader.readexactly(size)
            await reader.readexactly(2)
    elif "content-length" in headers:
        yield await reader.readexactly(int(headers["content-length"]))
    else:
        while piece := await reader.read(65536):
            yield piece


async def sse_data(pieces):
    """The data of each server-sent event, wherever the pieces are cut."""
    rest, data = b"", []
    async for piece in pieces:
        *lines, rest = (rest + piece).split(b"\n")
        for line in lines:
            line = line.rstrip(b"\r")
            if line.startswith(b"data:"):
                data.append(line[5:].removeprefix(b" "))
            elif not line and data:
                yield b"\n".join(data)
                data = []


async def stream_chat(url, body, headers):
    """Sends one streamed request: (first, gap, tokens, text), times from the start on."""
    begin = time.perf_counter()
    reader, writer = await asyncio.open_connection(url.hostname, url.port or 80)
    try:
        data = json.dumps(body).encode()
        head = {
            "Host": url.netloc,
            "Content-Type": "application/json",
            "Content-Length": len(data),
            "Connection": "close",
            **headers,
        }
        lines = [f"POST {url.path.rstrip('/')}/v1/chat/completions HTTP/1.1"]
        lines += [f"{name}: {value}" for name, value in head.items()]
        writer.write("\r\n".join([*lines, "", ""]).encode() + data)
        status, answer_headers = await read_head(reader)
        if status != 200:
            raise (Refusal if status in REFUSALS else Failure)(f"status {status}")
        return await read_answer(sse_data(read_body(reader, answer_headers)), begin)
    finally:
        writer.close()


async def read_answer(events, begin):
    first = last = None
    gap, pieces, tokens, text = 0.0, 0, None, ""
    async for data in events:
        if data == b"[DONE]":
            # Where a server does not say how many tokens there were, a piece counts as one.
            return (first or time.perf_counter()) - begin, gap, pieces if tokens is None else tokens, text
        event = json.loads(data)
        if "error" in event:
            error = event["error"] if isinstance(event["error"], dict) else {}
            raise Failure(f"error event {error.get('code') or error.get('type') or ''}".strip())
        if event.get("usage"):
            tokens = event["usage"].get("completion_tokens", tokens)
        choices = event.get("choices") or [{}]
        delta = (choices[0].get("delta") or {}).get("content")
        if delta:
            now = time.perf_counter()
            if first is None:
                first = now
            else:
                gap = max(gap, now - last)
            last, pieces, text = now, pieces + 1, text + delta
    raise Failure("stream cut")


async def attempt(url, body, headers, timeout):
    """(Attempt, text): never raises for what a server or a network does."""
    begin = time.perf_counter()

    def failed(kind, refused=False):
        now = time.perf_counter()
        return Attempt(end=now, total=now - begin, failure=kind, refused=refused), ""

    try:
        first, gap, tokens, text = await asyncio.wait_for(stream_chat(url, body, headers), timeout)
    except Refusal as refusal:
        return failed(str(refusal), refused=True)
    except Failure as failure:
        return failed(str(failure))
    except asyncio.TimeoutError:
        return failed("timeout")
    except asyncio.IncompleteReadError:
        return failed("stream cut")
    except OSError as error:
        return failed(type(error).__name__)
    except (ValueError, KeyError, TypeError, AttributeError):
        return failed("malformed answer")
    end = time.perf_counter()
    return Attempt(end=end, total=end - begin, first=first, gap=gap, tokens=tokens), text


# ---- Users ---------------------------------------------------------------------------------


async def run_user(index, args, begin, attempts):
    rng = random.Random(args.seed * 100003 + index)
    stop = begin + args.warmup + args.seconds
    # They do not arrive all at once.
    await asyncio.sleep(rng.random() * min(max(args.think[1], 0.2), args.warmup))
    while time.perf_counter() < stop:
        messages = [{"role": "system", "content": args.system}] if args.system else []
        session = f"{index}-{rng.randrange(1 << 30)}"
        headers = {args.session_header: session} if args.session_header else {}
        for turn in range(args.turns):
            messages.append({"role": "user", "content": make_message(rng)})
            body = {
                "model": args.model,
                "messages": messages,
                "stream": True,
                "stream_options": {"include_usage": True},
                "temperature": 0,
                "max_tokens": args.max_tokens,
                **args.extra,
            }
            done, text = await attempt(args.url, body, headers, args.timeout)
            done.turn = turn
            attempts.append(done)
            pause = rng.uniform(*args.think)
            await asyncio.sleep(max(pause, SHORTEST_PAUSE_S) if done.failure else pause)
            if done.failure or time.perf_counter() >= stop:
                break
            messages.append({"role": "assistant", "content": text})


def summarise(attempts, begin, args):
    """The result: what ended within the measured time."""
    start, stop = begin + args.warmup, begin + args.warmup + args.seconds
    counted = [a for a in attempts if start <= a.end <= stop]
    answered = [a for a in counted if not a.failure]
    refused = [a for a in counted if a.refused]
    errors = {}
    for failed in counted:
        if failed.failure and not failed.refused:
            errors[failed.failure] = errors.get(failed.failure, 0) + 1
    result = {
        "users": args.users,
        "seconds": args.seconds,
        "requests": len(answered),
        "requests_per_s": round(len(answered) / args.seconds, 2),
        "tokens_per_s": round(sum(a.tokens for a in answered) / args.seconds, 1),
        "first_token_ms": quantiles_ms([a.first for a in answered]),
        "worst_gap_ms": quantiles_ms([a.gap for a in answered]),
        "response_ms": quantiles_ms([a.total for a in answered]),
        "refused": len(refused),
        "refused_within_ms": quantiles_ms([a.total for a in refused]),
        "errors": errors,
    }
    if args.turns > 1:
        result["first_token_later_turns_ms"] = quantiles_ms([a.first for a in answered if a.turn > 0])
    return result


async def run_load(args):
    attempts = []
    begin = time.perf_counter()
    users = [asyncio.create_task(run_user(i, args, begin, attempts)) for i in range(args.users)]
    # What is under way at the end does not count: nobody waits for it.
    _, unfinished = await asyncio.wait(users, timeout=args.warmup + args.seconds)
    for user in unfinished:
        user.cancel()
    ends = await asyncio.gather(*users, return_exceptions=True)
    for end in ends:
        if isinstance(end, Exception):  # A bug of ours; a cancelled user is no Exception.
            raise end
    return summarise(attempts, begin, args)


def parse_url(text):
    url = urlsplit(text)
    if url.scheme != "http" or not url.hostname:
        raise argparse.ArgumentTypeError(f"{text!r}: wanted is http://HOST:PORT")
    return url


def positive(kind):
    def parse(text):
        value = kind(text)
        if value <= 0:
            raise argparse.ArgumentTypeError(f"{text}: wanted is a number above 0")
        return value

    return parse


def parse_args(words=None):
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--url", type=parse_url, default="http://127.0.0.1:8080")
    parser.add_argument("--users", type=positive(int), default=50)
    parser.add_argument("--seconds", type=positive(float), default=30.0, help="of measuring")
    parser.add_argument("--warmup", type=float, default=5.0, help="seconds before that")
    parser.add_argument("--think", type=parse_think, default="0.5-1.5", help="seconds, S or LOW-HIGH")
    parser.add_argument("--max-tokens", type=positive(int), default=16)
    parser.add_argument("--turns", type=positive(int), default=1, help="messages of a conversation")
    parser.add_argument("--model", default="default")
    parser.add_argument("--system", default="", help="a system message")
    parser.add_argument("--session-header", default="", help="carries a conversation's id, e.g. x-session-id")
    parser.add_argument("--extra", type=parse_object, default="{}", help="JSON merged into each request")
    parser.add_argument("--timeout", type=positive(float), default=120.0, help="seconds of a request")
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args(words)


def main():
    result = asyncio.run(run_load(parse_args()))
    print(json.dumps(result))
    return 0 if result["requests"] else 1


if __name__ == "__main__":
    sys.exit(main())
