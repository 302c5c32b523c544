"""The chat load client: what it counts, against a server that does as it is told."""

import argparse
import asyncio
import json
import random
import subprocess
import sys
import time

from bench_path import BENCH  # isort: skip

import chat_load
import pytest

OK_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"


def event(text, **fields):
    delta = {"content": text} if text is not None else {"role": "assistant"}
    return b"data: " + json.dumps({"choices": [{"delta": delta}], **fields}).encode() + b"\n\n"


USAGE = b'data: {"choices": [], "usage": {"completion_tokens": 7}}\n\n'
DONE = b"data: [DONE]\n\n"


def chunked(pieces):
    body = b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces)
    return OK_HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + body + b"0\r\n\r\n"


def plain(body):
    return OK_HEAD + b"\r\n" + body


def refusal(status):
    return b"HTTP/1.1 %d No\r\nContent-Length: 2\r\n\r\n{}" % status


async def serve(answer, act):
    """Runs `act(port)` beside a server that gives every request the bytes `answer(body)`."""

    async def handle(reader, writer):
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
            body = await reader.readexactly(length)
            said = answer(json.loads(body)) if callable(answer) else answer
            if said is None:
                await reader.read()  # Says nothing until the client goes.
            else:
                writer.write(said)
                await writer.drain()
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    async with server:
        return await act(server.sockets[0].getsockname()[1])


def ask(answer, timeout=30.0):
    """The Attempt and the text of one request to a server with that answer."""

    async def act(port):
        url = chat_load.parse_url(f"http://127.0.0.1:{port}")
        return await chat_load.attempt(url, {"messages": []}, {}, timeout)

    return asyncio.run(serve(answer, act))


def test_an_answer_is_read_however_its_bytes_are_cut():
    body = event(None) + b": still here\n\n" + event("Hel") + event("lo") + USAGE + DONE
    pieces = [[body], [body[i : i + 1] for i in range(len(body))], [body[:37], body[37:]]]
    answers = [chunked(p) for p in pieces] + [plain(body), plain(body.replace(b"\n", b"\r\n"))]
    answers.append(OK_HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body)
    for answer in answers:
        done, text = ask(answer)
        assert (done.failure, text, done.tokens) == ("", "Hello", 7)
        assert 0 < done.first <= done.total


def test_without_usage_a_piece_counts_as_a_token():
    done, _ = ask(plain(event("a") + event("b") + event("c") + DONE))
    assert done.tokens == 3


@pytest.mark.parametrize(
    "answer, kind",
    [
        (refusal(429), "status 429"),
        (refusal(503), "status 503"),
        (refusal(400), "status 400"),
        (plain(event("a")), "stream cut"),
        (chunked([event("a")])[:-9], "stream cut"),
        (plain(b'data: {"error": {"code": "deadline_exceeded"}}\n\n'), "error event deadline_exceeded"),
        (plain(b"data: not json\n\n"), "malformed answer"),
        (plain(b'data: {"choices": 5}\n\n'), "malformed answer"),
        (plain(b"data: 5\n\n"), "malformed answer"),
        (b"garbage\r\n\r\n", "no HTTP answer"),
        (b"", "no HTTP answer"),
    ],
)
def test_what_goes_wrong_is_counted_by_its_kind(answer, kind):
    done, text = ask(answer)
    assert (done.failure, text) == (kind, "")
    assert done.refused == (kind in ("status 429", "status 503"))


def test_a_silent_server_is_a_timeout():
    done, _ = ask(lambda body: None, timeout=0.05)
    assert done.failure == "timeout"


def test_nobody_there_is_an_error_of_the_connection():
    async def closed_port():
        return await serve(b"", lambda port: asyncio.sleep(0, port))

    url = chat_load.parse_url(f"http://127.0.0.1:{asyncio.run(closed_port())}")
    done, _ = asyncio.run(chat_load.attempt(url, {}, {}, 30.0))
    assert done.failure == "ConnectionRefusedError"


def test_messages_have_the_length_of_the_scenario_and_differ():
    rng = random.Random(1)
    messages = [chat_load.make_message(rng) for _ in range(2000)]
    assert {len(m) for m in messages} == set(range(50, 101))
    # Nothing at the end that a template would strip.
    assert all(m == m.strip() for m in messages)
    assert len({m[:6] for m in messages}) > 1990


def test_quantiles_are_of_the_nearest_rank():
    assert chat_load.quantiles_ms([i / 1000 for i in range(100, 0, -1)]) == {
        "p50": 50.0, "p95": 95.0, "p99": 99.0, "max": 100.0,
    }  # fmt: skip
    assert chat_load.quantiles_ms([0.5])["p99"] == 500.0
    assert chat_load.quantiles_ms([0.001, 0.002, 0.003])["p50"] == 2.0
    assert chat_load.quantiles_ms([]) is None


def test_only_what_ended_in_the_measured_time_counts():
    args = chat_load.parse_args(["--seconds", "10", "--warmup", "5", "--users", "3"])

    def done(end, **fields):
        return chat_load.Attempt(end=end, total=1.0, first=0.25, gap=0.125, tokens=16, **fields)

    inside = [done(105.0), done(110.0), done(115.0)]
    refused = [chat_load.Attempt(end=106.0, total=0.002, failure="status 429", refused=True)]
    failed = [chat_load.Attempt(end=107.0, total=1.0, failure="timeout")]
    outside = [done(104.9), done(115.1), chat_load.Attempt(end=116.0, total=1.0, failure="timeout")]
    result = chat_load.summarise(inside + refused + failed + outside, 100.0, args)
    assert (result["requests"], result["requests_per_s"], result["tokens_per_s"]) == (3, 0.3, 4.8)
    assert result["first_token_ms"]["p99"] == 250.0 and result["worst_gap_ms"]["p50"] == 125.0
    assert (result["refused"], result["refused_within_ms"]["max"]) == (1, 2.0)
    assert result["errors"] == {"timeout": 1}


@pytest.mark.parametrize("text, think", [("0", (0, 0)), ("1.5", (1.5, 1.5)), ("0.5-1.5", (0.5, 1.5))])
def test_think_times_are_one_number_or_two(text, think):
    assert chat_load.parse_think(text) == think


@pytest.mark.parametrize("text", ["", "-1", "2-1", "1-", "a", "1-2-3", "nan"])
def test_a_wrong_think_time_is_refused(text):
    with pytest.raises(argparse.ArgumentTypeError):
        chat_load.parse_think(text)


def test_a_conversation_carries_its_earlier_messages_and_answers():
    seen = []

    def answer(body):
        seen.append(body)
        return chunked([event("fine"), USAGE, DONE])

    async def act(port):
        args = chat_load.parse_args([
            "--url", f"http://127.0.0.1:{port}", "--users", "1", "--warmup", "0", "--seconds", "0.3",
            "--think", "0", "--turns", "3", "--system", "Be brief.", "--max-tokens", "4",
            "--extra", '{"ignore_eos": true}',
        ])  # fmt: skip
        return await chat_load.run_load(args)

    result = asyncio.run(serve(answer, act))
    assert result["requests"] >= 3 and not result["errors"] and result["refused"] == 0
    assert "first_token_later_turns_ms" in result
    first, second, third = seen[:3]
    assert [m["role"] for m in third["messages"]] == ["system", "user", "assistant"] + ["user", "assistant", "user"]
    assert third["messages"][:4] == second["messages"] and second["messages"][:2] == first["messages"]
    assert third["messages"][2]["content"] == "fine"
    assert (first["stream"], first["max_tokens"], first["ignore_eos"]) == (True, 4, True)


def test_the_program_prints_one_json_object_and_fails_if_nothing_was_answered():
    async def act(port):
        words = [
            sys.executable, "-B", str(BENCH / "chat_load.py"), "--url", f"http://127.0.0.1:{port}",
            "--users", "2", "--warmup", "0", "--seconds", "0.5", "--think", "0.01",
        ]  # fmt: skip
        process = await asyncio.create_subprocess_exec(*words, stdout=subprocess.PIPE)
        out, _ = await process.communicate()
        return process.returncode, json.loads(out)

    status, result = asyncio.run(serve(refusal(429), act))
    assert (status, result["requests"]) == (1, 0) and result["refused"] > 0
    status, result = asyncio.run(serve(plain(event("a") + DONE), act))
    assert status == 0 and result["requests"] > 0 and result["users"] == 2


@pytest.mark.parametrize("think, pause", [("30", 30.0), ("0", chat_load.SHORTEST_PAUSE_S)])
def test_a_refused_user_thinks_before_asking_again(monkeypatch, think, pause):
    class Enough(Exception):
        pass

    async def refuse(*_):
        return chat_load.Attempt(end=0.0, total=0.0, failure="status 429", refused=True), ""

    pauses = []

    async def sleep(seconds):
        pauses.append(seconds)
        if len(pauses) == 3:
            raise Enough

    monkeypatch.setattr(chat_load, "attempt", refuse)
    monkeypatch.setattr(chat_load.asyncio, "sleep", sleep)
    args = chat_load.parse_args(["--think", think, "--turns", "2"])
    attempts = []
    with pytest.raises(Enough):
        asyncio.run(chat_load.run_user(0, args, time.perf_counter(), attempts))
    # The first pause is the user's arrival; each refusal ended its conversation.
    assert pauses[1:] == [pause, pause] and [a.turn for a in attempts] == [0, 0]
