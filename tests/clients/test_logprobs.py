"""Log-probabilities of answers and prompts, echo, and bytes that are no whole character."""

import math

import pytest
from conftest import Answer, eventually, pb, refused, text_request


def ids_of(server, text):
    return list(server.stub().Tokenize(pb.TokenizeRequest(text=text)).token_ids)


def detokenized(server, ids):
    return server.stub().Detokenize(pb.DetokenizeRequest(token_ids=ids)).text


def assert_is_logprob(entry, asked):
    assert entry.logprob <= 0
    assert len(entry.top) == asked
    values = [top.logprob for top in entry.top]
    assert values == sorted(values, reverse=True)
    assert len({top.token_id for top in entry.top}) == asked
    for top in entry.top:
        if top.token_id == entry.token_id:
            assert (top.logprob, top.token) == (entry.logprob, entry.token)
        elif entry.logprob > values[-1]:
            assert entry.token_id in {t.token_id for t in entry.top}
    assert math.fsum(math.exp(v) for v in values) < 1 + 1e-3


@pytest.mark.parametrize("asked", [0, 1, 5, 20])
def test_every_token_has_its_own_entry_and_stream_equals_unary(server, asked):
    request = text_request(
        "Grüße, wörld \U0001f600",
        dict(seed=4),
        max_tokens=40,
        ignore_end_token=True,
        logprobs=asked,
        stop=["nothing like this comes", "nor this"],
        echo=True,
    )
    stream = Answer(server.stub().Generate(request))
    stream.assert_equals_unary(server.stub().GenerateUnary(request))
    entries = [entry for chunk in stream.chunks for entry in chunk.logprobs]
    assert [entry.token_id for entry in entries] == stream.token_ids
    assert len(entries) == stream.finished.usage.completion_tokens
    for entry in entries:
        assert_is_logprob(entry, asked)
    # Not the same list again and again.
    assert asked == 0 or len({entries[i].SerializeToString() for i in range(9)}) > 1
    joined = b"".join(entry.token for entry in entries)
    assert detokenized(server, stream.token_ids).startswith(stream.text)
    assert joined.decode(errors="replace").replace("\ufffd", "").startswith(
        stream.text.replace("\ufffd", "")
    )


def test_without_logprobs_there_are_none(server):
    answer = server.stub().GenerateUnary(text_request(max_tokens=4))
    assert not answer.logprobs
    assert not answer.started.prompt_logprobs
    assert not answer.started.prompt_token_ids
    assert answer.started.prompt_text == ""


def test_a_greedy_token_leads_its_list(server):
    answer = server.stub().GenerateUnary(
        text_request(sampling=dict(temperature=0), max_tokens=20, logprobs=3)
    )
    for entry in answer.logprobs:
        assert entry.top[0].token_id == entry.token_id
        assert entry.top[0].logprob == entry.logprob


def forced(server, token, **fields):
    """The first token is `token`; its log-probability is the model's all the same."""
    sampling = dict(temperature=0, logit_bias=[pb.LogitBias(token_id=token, bias=100)])
    request = dict(text="hi", max_tokens=1, ignore_end_token=True, logprobs=0)
    answer = server.stub().GenerateUnary(
        pb.GenerateRequest(sampling=pb.SamplingParams(**sampling), **{**request, **fields})
    )
    assert list(answer.token_ids) == [token]
    return answer.logprobs[0].logprob


def test_the_probabilities_of_the_whole_vocabulary_are_one(start, tiny_model):
    server = start(tiny_model).wait_ready()
    size = server.stub().GetModel(pb.GetModelRequest()).vocab_size
    # A bias of 100 beats every other token, and is not in the log-probability.
    total = math.fsum(math.exp(forced(server, token)) for token in range(size))
    assert abs(total - 1) < 1e-3


def test_temperature_penalties_filters_and_bias_do_not_change_logprobs(server):
    base = text_request(sampling=dict(temperature=0), max_tokens=1, logprobs=20)
    plain = server.stub().GenerateUnary(base).logprobs[0]
    banned = pb.LogitBias(token_id=plain.token_id, bias=-100)
    for sampling in (
        dict(seed=1, temperature=3),
        dict(seed=1, top_k=2),
        dict(temperature=0, logit_bias=[banned]),
        dict(temperature=0, repetition_penalty=5, presence_penalty=2),
    ):
        base.sampling.CopyFrom(pb.SamplingParams(**sampling))
        assert list(server.stub().GenerateUnary(base).logprobs[0].top) == list(plain.top)


# ---- The prompt ----------------------------------------------------------------------

PROMPT = "Hello, wörld! " * 20


def test_the_prompt_comes_back_with_echo(server):
    ids = ids_of(server, PROMPT)
    answer = server.stub().GenerateUnary(text_request(PROMPT, max_tokens=2, echo=True))
    assert list(answer.started.prompt_token_ids) == ids
    assert answer.started.prompt_text == PROMPT
    by_ids = server.stub().GenerateUnary(
        pb.GenerateRequest(token_ids=pb.TokenIds(ids=ids), max_tokens=2, echo=True)
    )
    assert list(by_ids.started.prompt_token_ids) == ids
    assert by_ids.started.prompt_text == PROMPT


def test_the_prompt_alone_can_be_asked_for(server):
    ids = ids_of(server, PROMPT)
    before = server.metric("renga_generated_tokens_total")
    for fields in (dict(echo=True), dict(prompt_logprobs=2), dict(echo=True, prompt_logprobs=0)):
        request = text_request(PROMPT, max_tokens=0, **fields)
        stream = Answer(server.stub().Generate(request))
        stream.assert_equals_unary(server.stub().GenerateUnary(request))
        assert stream.order == ["started", "finished"]
        assert stream.token_ids == []
        assert stream.finished.usage.prompt_tokens == len(ids)
        assert stream.finished.usage.completion_tokens == 0
        assert stream.finished.finish_reason == pb.FINISH_REASON_LENGTH
    assert server.metric("renga_generated_tokens_total") == before
    assert refused(server.stub().GenerateUnary, text_request(max_tokens=0)).details().startswith(
        "max_tokens"
    )


def test_the_prompts_logprobs_are_those_of_its_beginnings(server):
    ids = ids_of(server, PROMPT)
    answer = server.stub().GenerateUnary(text_request(PROMPT, max_tokens=1, prompt_logprobs=4))
    entries = answer.started.prompt_logprobs
    assert [entry.token_id for entry in entries] == ids[1:]
    for entry in entries:
        assert_is_logprob(entry, 4)
    for cut in (1, 2, 63, 64, 65, len(ids) - 1):
        beginning = dict(text=None, token_ids=pb.TokenIds(ids=ids[:cut]))
        assert forced(server, ids[cut], **beginning) == entries[cut - 1].logprob, cut


def test_the_prompts_logprobs_do_not_depend_on_the_cache(server):
    request = text_request(
        "again " + PROMPT, dict(seed=1), max_tokens=3, prompt_logprobs=3, logprobs=3
    )
    cold = server.stub().GenerateUnary(request)
    warm = server.stub().GenerateUnary(request)
    request.no_cache = True
    uncached = server.stub().GenerateUnary(request)
    for other in (warm, uncached):
        assert list(other.started.prompt_logprobs) == list(cold.started.prompt_logprobs)
        assert list(other.logprobs) == list(cold.logprobs)


def test_a_prompt_of_one_token_has_no_logprobs(server):
    request = pb.GenerateRequest(
        token_ids=pb.TokenIds(ids=[40]), max_tokens=0, prompt_logprobs=1, echo=True
    )
    answer = server.stub().GenerateUnary(request)
    assert not answer.started.prompt_logprobs
    assert list(answer.started.prompt_token_ids) == [40]


# ---- Bytes ---------------------------------------------------------------------------


def test_a_character_of_several_tokens_comes_whole_and_each_token_counts(server):
    """Answers made of single bytes of characters: whole ones, cut ones and wrong ones."""
    pieces = sorted({t for c in "€\U0001f600é" for t in ids_of(server, c)})
    assert len(pieces) > 3, "this model has no single bytes"
    bias = [pb.LogitBias(token_id=token, bias=100) for token in pieces]
    whole = 0
    for seed in range(30):
        request = text_request(
            sampling=dict(seed=seed, temperature=3, logit_bias=bias),
            max_tokens=60,
            logprobs=0,
        )
        stream = Answer(server.stub().Generate(request))
        stream.assert_equals_unary(server.stub().GenerateUnary(request))
        assert set(stream.token_ids) <= set(pieces)
        assert stream.text == detokenized(server, stream.token_ids)
        assert stream.finished.usage.completion_tokens == 60 == len(stream.token_ids)
        for chunk in stream.chunks:
            assert chunk.text or chunk.token_ids
            assert [e.token_id for e in chunk.logprobs] == list(chunk.token_ids)
        whole += sum(stream.text.count(c) for c in "€\U0001f600é")
    assert whole > 0


def test_the_server_is_as_before(server):
    eventually(server.idle, "idle")
