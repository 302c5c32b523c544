"""The official `openai` client against a real server with its gateway."""

import json
import random
import threading

import openai
import pytest
from conftest import eventually
from gateway_server import HttpServer, error_of, http_bytes, raw_connection, request, sse_data

HELLO = [{"role": "user", "content": "Tell me a story"}]
GREEDY = {"model": "default", "messages": HELLO, "temperature": 0, "max_tokens": 24}


@pytest.fixture(scope="module")
def server(model):
    running = HttpServer(model).wait_ready()
    yield running
    running.stop_alive()


@pytest.fixture(scope="module")
def client(server):
    return server.client()


@pytest.fixture
def start(model):
    """start(flag, value, ...) -> HttpServer, stopped at the end of the test."""
    servers = []

    def start_one(*flags, **options):
        servers.append(HttpServer(model, *flags, **options))
        return servers[-1]

    yield start_one
    for one in servers:
        one.stop()


def alive(server, before):
    """What was answered before is answered again, and nothing is left over."""
    assert server.client().chat.completions.create(**GREEDY).choices == before
    eventually(lambda: server.metric("renga_requests_running") == 0, "no request runs")


# ---- Answers -----------------------------------------------------------------------------


def test_a_chat_a_stream_and_a_completion(client, server):
    whole = client.chat.completions.create(**GREEDY)
    assert whole.object == "chat.completion"
    assert whole.choices[0].message.role == "assistant"
    assert whole.choices[0].finish_reason in ("stop", "length")
    assert whole.usage.total_tokens == whole.usage.prompt_tokens + whole.usage.completion_tokens
    assert whole.system_fingerprint
    text = ""
    ends = []
    ids = set()
    for chunk in client.chat.completions.create(**GREEDY, stream=True):
        ids.add(chunk.id)
        text += chunk.choices[0].delta.content or ""
        ends += [c.finish_reason for c in chunk.choices if c.finish_reason]
    assert text == whole.choices[0].message.content
    assert ends == [whole.choices[0].finish_reason]
    assert len(ids) == 1
    completion = client.completions.create(model="", prompt="Once upon", max_tokens=5, temperature=0)
    assert completion.object == "text_completion"
    assert completion.usage.completion_tokens <= 5


def random_request(rng):
    request_ = {
        "model": "default",
        "prompt": "".join(rng.choice("abc äß€😀 \n") for _ in range(rng.randint(1, 40))),
        "max_tokens": rng.randint(1, 30),
        "seed": rng.randrange(2**63),
        "temperature": rng.choice([0, 0.7, 1.5]),
        "n": rng.randint(1, 3),
    }
    if rng.random() < 0.5:
        request_["stop"] = [rng.choice("abcdefghij"), "QQ"]
    if rng.random() < 0.5:
        request_["logprobs"] = rng.randint(0, 5)
    if rng.random() < 0.3:
        request_["echo"] = True
    return request_


@pytest.mark.parametrize("seed", range(25))
def test_a_stream_equals_the_whole_answer_byte_for_byte(client, seed):
    body = random_request(random.Random(seed))
    whole = client.completions.create(**body)
    n = body["n"]
    texts, ends, tokens, offsets = [""] * n, [None] * n, [[] for _ in range(n)], [[] for _ in range(n)]
    usage = None
    options = {"stream": True, "stream_options": {"include_usage": True}}
    for chunk in client.completions.create(**body, **options):
        usage = chunk.usage or usage
        for choice in chunk.choices:
            assert ends[choice.index] is None, "something follows the end"
            texts[choice.index] += choice.text
            ends[choice.index] = choice.finish_reason
            if choice.logprobs:
                tokens[choice.index] += choice.logprobs.tokens
                offsets[choice.index] += choice.logprobs.text_offset
    assert usage.completion_tokens == whole.usage.completion_tokens
    for choice in whole.choices:
        assert texts[choice.index].encode() == choice.text.encode()
        assert ends[choice.index] == choice.finish_reason
        if choice.logprobs:
            assert tokens[choice.index] == choice.logprobs.tokens
            assert offsets[choice.index] == choice.logprobs.text_offset


def test_usage_comes_in_one_last_chunk_and_only_when_asked(client):
    for limit in (1, 5, 20):
        body = {**GREEDY, "max_tokens": limit, "extra_body": {"ignore_eos": True}}
        plain = list(client.chat.completions.create(**body, stream=True))
        assert all(c.usage is None and len(c.choices) == 1 for c in plain)
        asked = list(
            client.chat.completions.create(
                **body, stream=True, stream_options={"include_usage": True}
            )
        )
        assert [c.usage is not None for c in asked] == [False] * (len(asked) - 1) + [True]
        assert asked[-1].choices == []
        assert asked[-1].usage.completion_tokens == limit


def test_n_choices_are_n_answers_and_the_prompt_counts_once(client):
    one = client.chat.completions.create(**GREEDY)
    three = client.chat.completions.create(**{**GREEDY, "temperature": 1.5}, n=3, seed=4)
    assert [c.index for c in three.choices] == [0, 1, 2]
    assert three.usage.prompt_tokens == one.usage.prompt_tokens
    assert len({c.message.content for c in three.choices}) > 1


def test_a_seed_gives_the_same_answer_again(client):
    body = {**GREEDY, "temperature": 1.2, "seed": 2**63 - 1}
    first = client.chat.completions.create(**body).choices
    assert client.chat.completions.create(**body).choices == first
    assert client.chat.completions.create(**{**body, "seed": 0}).choices != first


def test_a_stop_string_ends_the_answer_before_it(client):
    whole = client.chat.completions.create(**GREEDY).choices[0].message.content
    if len(whole) < 6:
        pytest.skip("the model says too little")
    stop = whole[3:6]
    cut = client.chat.completions.create(**GREEDY, stop=[stop]).choices[0]
    assert cut.message.content == whole[: whole.index(stop)]
    assert cut.finish_reason == "stop"
    assert cut.stop_cause == "stop_string"


def test_logprobs_are_one_entry_a_token_and_their_bytes_the_text(client):
    answer = client.chat.completions.create(**GREEDY, logprobs=True, top_logprobs=3)
    entries = answer.choices[0].logprobs.content
    assert len(entries) == answer.usage.completion_tokens
    joined = b"".join(bytes(entry.bytes) for entry in entries)
    assert joined.decode(errors="replace").strip() == answer.choices[0].message.content.strip()
    for entry in entries:
        assert entry.logprob <= 0
        assert len(entry.top_logprobs) == 3
        assert entry.top_logprobs[0].logprob >= entry.logprob


def test_echo_gives_the_prompt_back_with_its_logprobs(client):
    prompt = "Once upon a time"
    body = {"model": "", "prompt": prompt, "temperature": 0, "logprobs": 1}
    alone = client.completions.create(**body, echo=True, max_tokens=0)
    assert alone.choices[0].text == prompt
    assert alone.usage.completion_tokens == 0
    both = client.completions.create(**body, echo=True, max_tokens=4)
    assert both.choices[0].text.startswith(prompt)
    logprobs = both.choices[0].logprobs
    assert logprobs.token_logprobs[0] is None
    assert len(logprobs.tokens) == both.usage.prompt_tokens + both.usage.completion_tokens
    assert logprobs.text_offset == sorted(logprobs.text_offset)


def test_a_biased_token_is_all_that_comes(client):
    bias = {"bias": {"logit_bias": {"5": 100}}, "ban": {"logit_bias": {"5": -100}}}
    forced = client.completions.create(
        model="", prompt="x", max_tokens=4, temperature=0, logprobs=0, **bias["bias"]
    )
    assert len(set(forced.choices[0].logprobs.tokens)) == 1
    banned = client.completions.create(
        model="", prompt="x", max_tokens=4, temperature=0, logprobs=0, **bias["ban"]
    )
    assert forced.choices[0].logprobs.tokens[0] not in banned.choices[0].logprobs.tokens


def test_several_prompts_are_several_choices(client):
    prompts = ["a", "b", "c"]
    body = {"model": "", "max_tokens": 4, "temperature": 0}
    together = client.completions.create(prompt=prompts, **body)
    for prompt, choice in zip(prompts, together.choices, strict=True):
        assert choice.text == client.completions.create(prompt=prompt, **body).choices[0].text


def test_models_are_listed_and_found(client):
    (listed,) = client.models.list().data
    assert client.models.retrieve(listed.id).id == listed.id
    with pytest.raises(openai.NotFoundError) as refused:
        client.chat.completions.create(**{**GREEDY, "model": "gpt-none"})
    assert refused.value.code == "model_not_found"


def test_tokens_there_and_back(server):
    text = "Hello, wörld 😀"
    tokens = json.loads(server.post("/tokenize", {"prompt": text})[2])
    assert tokens["count"] == len(tokens["tokens"])
    back = json.loads(server.post("/detokenize", {"tokens": tokens["tokens"]})[2])
    assert back["prompt"].strip() == text


# ---- Refusals ----------------------------------------------------------------------------

WRONG_FIELDS = [
    ("max_tokens", -1), ("max_tokens", 8.5), ("max_tokens", "8"), ("max_tokens", 0),
    ("temperature", -0.1), ("temperature", "1"), ("temperature", 1e308), ("top_p", 0),
    ("top_p", 1.0000001), ("min_p", 1.1), ("n", 0), ("n", 17), ("seed", -1), ("seed", 1.5),
    ("stop", [""]), ("stop", ["x"] * 1000), ("stop_token_ids", [-1]),
    ("stop_token_ids", [2**31]), ("stop_token_ids", [10**6]), ("logit_bias", {"AI": 1}),
    ("logit_bias", {"-1": 1}), ("logit_bias", {"5": 101}), ("messages", []),
    ("messages", [{"role": "wizard", "content": "x"}]), ("tools", [{"type": "function"}]),
    ("response_format", {"type": "json_object"}), ("session_id", "s"), ("typo", 1),
    ("deadline_ms", 0), ("top_logprobs", 5), ("priority", "urgent"),
]  # fmt: skip


@pytest.mark.parametrize("stream", [False, True])
def test_a_wrong_field_is_refused_by_its_name_before_anything(server, client, stream):
    before = client.chat.completions.create(**GREEDY).choices
    for field, value in WRONG_FIELDS:
        answer = server.post("/v1/chat/completions", {**GREEDY, field: value, "stream": stream})
        assert answer[0] == 400, (field, value, answer)
        error = error_of(answer)
        assert error["type"] == "invalid_request_error"
        assert error["param"].startswith(field), (field, value, error)
    alive(server, before)


BROKEN_BODIES = [
    b"", b"{", b"[]", b"nul", b'{"messages": [{"role": "user", "content": "x \\ud83d y"}]}',
    b'{"messages": [{"role": "user", "content": "\xff"}]}', b'{"\xff": 1}',
    b'{"model": "\xc3", "messages": []}', b'{"temperature": NaN, "messages": []}',
    b'{"stream": false, "stream": true, "messages": []}',
    b'{"x": ' + b"[" * 100000, b'{"x": ' + b'{"a":' * 100000,
]  # fmt: skip


def test_a_broken_body_is_refused_in_valid_json(server, client):
    before = client.chat.completions.create(**GREEDY).choices
    for body in BROKEN_BODIES:
        answer = server.post("/v1/chat/completions", body)
        assert answer[0] == 400, (body[:40], answer)
        error_of(answer)
    alive(server, before)


BAD_PROMPTS = ["", [], [-1], [10**6], [1.5], [1, "a"], [[1], [10**6]], {"a": 1}, True]


def test_a_bad_prompt_is_refused_and_with_it_the_lot(server):
    for prompt in BAD_PROMPTS:
        answer = server.post("/v1/completions", {"prompt": prompt, "max_tokens": 2})
        if prompt == "" and answer[0] == 200:
            continue  # A model with a begin-of-text token has a prompt even so.
        assert answer[0] == 400, (prompt, answer)
        assert error_of(answer)["param"].startswith("prompt"), (prompt, answer)


def test_text_of_the_client_is_never_a_template_nor_cut_at_a_nul(server):
    def prompt_tokens(content):
        body = {**GREEDY, "messages": [{"role": "user", "content": content}], "max_tokens": 1}
        answer = server.post("/v1/chat/completions", body)
        assert answer[0] == 200, answer
        return json.loads(answer[2])["usage"]["prompt_tokens"]

    assert prompt_tokens("a\0b") > prompt_tokens("a")
    assert prompt_tokens("{{ 7*7 }}{% raw %}") > prompt_tokens("49")
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    assert prompt_tokens(parts) == prompt_tokens("ab")


def test_lenient_ignores_what_it_does_not_know(start):
    server = start("--gateway.lenient", "true").wait_ready()
    assert server.post("/v1/chat/completions", {**GREEDY, "typo": 1})[0] == 200
    assert server.post("/v1/chat/completions", {**GREEDY, "tools": [{}]})[0] == 400


# ---- Clients that go, and the end --------------------------------------------------------


def test_a_client_that_goes_frees_all(server, client):
    before = client.chat.completions.create(**GREEDY).choices
    endless = {"prompt": "x", "max_tokens": 3000, "ignore_eos": True}
    for stream in (True, False):
        with raw_connection(server.http_address) as plain:
            plain.sendall(http_bytes("/v1/completions", {**endless, "stream": stream}))
            eventually(lambda: server.metric("renga_requests_running") == 1, "it runs")
            if stream:
                assert plain.recv(100).startswith(b"HTTP/1.1 200")
        eventually(lambda: server.metric("renga_requests_running") == 0, "it was ended")
    alive(server, before)


def test_streams_that_nobody_reads_do_not_hold_up_others(server, client):
    before = client.chat.completions.create(**GREEDY).choices
    endless = {"prompt": "x", "max_tokens": 3000, "ignore_eos": True, "stream": True}
    stalled = [raw_connection(server.http_address, receive_buffer=4096) for _ in range(8)]
    for plain in stalled:
        plain.sendall(http_bytes("/v1/completions", endless))
    assert client.chat.completions.create(**GREEDY).choices == before
    for plain in stalled:
        plain.close()
    alive(server, before)


def test_many_streams_at_once_each_equal_their_run_alone(server, client):
    def ask(i):
        body = {"model": "", "prompt": f"number {i}", "max_tokens": 16, "seed": i}
        chunks = client.completions.create(**body, stream=True)
        return "".join(choice.text for chunk in chunks for choice in chunk.choices)

    alone = [ask(i) for i in range(16)]
    together = [None] * 16

    def run(i):
        together[i] = ask(i)

    threads = [threading.Thread(target=run, args=(i,)) for i in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert together == alone


def test_sigterm_lets_streams_finish_and_refuses_new_requests(start):
    server = start().wait_ready()
    body = {"prompt": "x", "max_tokens": 400, "ignore_eos": True, "stream": True}
    idle = raw_connection(server.http_address)
    running = raw_connection(server.http_address)
    running.sendall(http_bytes("/v1/completions", body))
    text = running.recv(100)
    server.terminate()
    server.wait_event("draining")
    assert idle.recv(1) == b"", "an idle connection is closed"
    while part := running.recv(65536):
        text += part
    assert b"data: [DONE]" in text
    assert server.wait_exit() == 0


# ---- Beside the API ----------------------------------------------------------------------


def test_health_follows_readiness_and_the_page_is_there(start):
    server = start().wait_ready()
    assert server.get_http("/health")[0] == 200
    status, headers, page = server.get_http("/")
    assert status == 200 and "<!doctype html>" in page
    assert "default-src 'none'" in headers["Content-Security-Policy"]


def test_the_request_id_comes_back_and_errors_have_one_too(server):
    assert server.post("/v1/chat/completions", GREEDY, x_request_id="abc")[1]["X-Request-Id"] == "abc"
    assert server.post("/v1/chat/completions", {}, x_request_id="abc")[1]["X-Request-Id"] == "abc"
    assert server.get_http("/nothing")[1]["X-Request-Id"]


def test_with_keys_on_only_health_and_the_page_are_open(start, tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("team secret-key-of-the-team\n")
    keys.chmod(0o600)
    server = start("--auth.keys_file", str(keys)).wait_ready()
    for path in ("/v1/models", "/v1/models/x", "/api/load", "/v1/chat/completions", "/nothing"):
        for method in ("GET", "POST"):
            assert request(server.http_address, method, path)[0] == 401, path
    for path in ("/tokenize", "/detokenize", "/v1/completions", "/v1/chat/completions"):
        assert server.post(path, {"prompt": "x", "tokens": [1]})[0] == 401, path
    for path in ("/health", "/", "/page/chat.js"):
        assert server.get_http(path)[0] == 200, path
    with pytest.raises(openai.AuthenticationError):
        server.client(api_key="wrong").chat.completions.create(**GREEDY)
    assert server.client(api_key="secret-key-of-the-team").chat.completions.create(**GREEDY)
    assert "secret-key-of-the-team" not in "\n".join(server.lines)


def test_no_prompt_is_in_the_log_or_in_an_error(start):
    server = start("--log.level", "trace").wait_ready()
    server.post("/v1/completions", {"prompt": "ZQX-17", "max_tokens": 2})
    answer = server.post("/v1/completions", b'{"prompt": "ZQX-17", ')
    assert "ZQX-17" not in answer[2]
    assert "ZQX-17" not in "\n".join(server.lines)


def test_curl_reads_a_stream(server):
    import shutil
    import subprocess

    if not shutil.which("curl"):
        pytest.skip("no curl")
    done = subprocess.run(
        ["curl", "-sSN", "--json", json.dumps({**GREEDY, "stream": True}),
         f"http://{server.http_address}/v1/chat/completions"],
        capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    assert sse_data(done.stdout)[-1] == "[DONE]"
