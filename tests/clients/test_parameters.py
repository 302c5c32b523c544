"""Sampling parameters and lengths: what each does at and beyond its limits."""

import random

import grpc
import pytest
from conftest import Answer, eventually, in_threads, pb, refused, text_request

INT32_MAX = 2**31 - 1
MIXED = [f"neighbour {i}" for i in range(7)]


@pytest.fixture(scope="module")
def vocab(server):
    return server.stub().GetModel(pb.GetModelRequest()).vocab_size


@pytest.fixture(scope="module")
def end_tokens(server):
    return list(server.stub().GetModel(pb.GetModelRequest()).end_token_ids)


def ids_of(server, **fields):
    request = text_request(**{"max_tokens": 16, "ignore_end_token": True, **fields})
    return list(server.stub().GenerateUnary(request).token_ids)


def biased(*pairs, **fields):
    biases = [pb.LogitBias(token_id=token, bias=bias) for token, bias in pairs]
    return {"logit_bias": biases, **fields}


# ---- Seeds ---------------------------------------------------------------------------


def test_a_seed_is_obeyed_whatever_the_neighbours_are(server):
    seeded = text_request(
        sampling=dict(seed=42, temperature=0.8), max_tokens=32, ignore_end_token=True
    )
    alone = [list(server.stub().GenerateUnary(seeded).token_ids) for _ in range(5)]
    assert all(ids == alone[0] for ids in alone)
    dice = random.Random(1)
    for round in range(20):
        neighbours = [
            text_request(
                dice.choice(MIXED) * dice.randrange(1, 9),
                dict(temperature=dice.random() * 2),
                max_tokens=dice.randrange(1, 48),
                n=dice.randrange(1, 3),
            )
            for _ in range(dice.randrange(1, 8))
        ]
        requests = [*neighbours, seeded]
        dice.shuffle(requests)
        stub = server.stub()
        answers = in_threads([lambda r=r: stub.GenerateUnary(r) for r in requests])
        assert list(answers[requests.index(seeded)].token_ids) == alone[0], round


def test_without_a_seed_two_answers_differ_and_every_seed_is_one_of_its_own(server):
    hot = dict(temperature=1.5)
    unseeded = [ids_of(server, sampling=hot, max_tokens=64) for _ in range(2)]
    assert unseeded[0] != unseeded[1]
    seeds = (0, 1, 2**31, 2**63 - 1, 2**64 - 1)
    answers = {
        seed: ids_of(server, sampling=dict(hot, seed=seed), max_tokens=64) for seed in seeds
    }
    assert len({tuple(ids) for ids in answers.values()}) == len(seeds)


# ---- Filters -------------------------------------------------------------------------


def test_filters_that_keep_everything_change_nothing(server, vocab):
    seed = dict(seed=11, temperature=1.2)
    off = ids_of(server, sampling=seed)
    for top_k in (0, -1, vocab, vocab + 1, 9_999_999, INT32_MAX):
        assert ids_of(server, sampling=dict(seed, top_k=top_k)) == off, top_k
    for filters in (dict(top_p=1), dict(min_p=0), dict(typical_p=1)):
        assert ids_of(server, sampling=dict(seed, **filters)) == off, filters


def test_filters_that_keep_one_token_give_the_greedy_answer(server):
    greedy = ids_of(server, sampling=dict(temperature=0))
    for filters in (dict(top_k=1), dict(top_p=1e-9), dict(min_p=1)):
        for seed in (1, 2):
            assert ids_of(server, sampling=dict(seed=seed, **filters)) == greedy, filters


def test_the_smallest_typical_set_leaves_no_choice_to_the_seed(server):
    answers = [ids_of(server, sampling=dict(seed=s, typical_p=1e-9)) for s in (1, 2, 3)]
    assert answers[0] == answers[1] == answers[2]


@pytest.mark.parametrize("filters", [dict(top_k=INT32_MAX), dict(top_p=1e-9), dict(min_p=1)])
def test_a_filter_does_not_reach_a_greedy_neighbour(server, filters):
    alone = ids_of(server, sampling=dict(temperature=0), max_tokens=40)
    others = [lambda: ids_of(server, sampling=filters, max_tokens=40) for _ in range(3)]
    greedy = lambda: ids_of(server, sampling=dict(temperature=0), max_tokens=40)  # noqa: E731
    assert in_threads([*others, greedy])[-1] == alone


# ---- logit_bias ----------------------------------------------------------------------


def test_a_banned_token_never_comes_and_a_forced_one_always_does(server):
    greedy = dict(temperature=0)
    reference = ids_of(server, sampling=greedy, max_tokens=8)
    banned, forced = reference[0], 40
    for sampling in (greedy, dict(seed=5, temperature=1)):
        for extra in ({}, {"logprobs": 5}):
            ids = ids_of(server, sampling=biased((banned, -100), **sampling), **extra)
            assert banned not in ids
            ids = ids_of(server, sampling=biased((forced, 100), **sampling), **extra)
            assert ids == [forced] * 16
    # A neighbour without a bias is as before; a long prompt is computed in slices.
    answers = in_threads(
        [
            lambda: ids_of(server, sampling=biased((forced, 100)), text="x " * 600),
            lambda: ids_of(server, sampling=greedy, max_tokens=8),
        ]
    )
    assert answers == [[forced] * 16, reference]


def test_a_bias_at_the_borders_of_the_vocabulary_works(server, vocab):
    assert ids_of(server, sampling=biased((0, 100)), max_tokens=3) == [0] * 3
    assert ids_of(server, sampling=biased((vocab - 1, 100)), max_tokens=3) == [vocab - 1] * 3


def test_biases_that_make_no_sense_are_refused_by_name(server, vocab):
    wrong = [
        [(vocab, 1)],
        [(vocab + 1, 1)],
        [(INT32_MAX, 1)],
        [(-1, 1)],
        [(3, 100.5)],
        [(3, -101)],
        [(3, 1e38)],
        [(3, float("nan"))],
        [(3, float("inf"))],
        [(3, 1), (4, 1), (3, 2)],
        [(i % vocab, 0) for i in range(1025)],
    ]
    for pairs in wrong:
        error = refused(server.stub().GenerateUnary, text_request(sampling=biased(*pairs)))
        assert error.code() == grpc.StatusCode.INVALID_ARGUMENT
        assert "logit_bias" in error.details().split(":")[0], pairs[:3]


# ---- Penalties -----------------------------------------------------------------------


def test_a_frequency_penalty_outweighs_a_bias_at_last(server):
    forced = dict(temperature=0, **biased((40, 100)))
    assert ids_of(server, sampling=forced, max_tokens=120) == [40] * 120
    ids = ids_of(server, sampling=dict(forced, frequency_penalty=2), max_tokens=120)
    assert ids[:40] == [40] * 40
    assert set(ids) != {40}


@pytest.mark.parametrize(
    "penalty", [dict(repetition_penalty=10), dict(presence_penalty=2), dict(frequency_penalty=2)]
)
def test_penalties_change_the_answer_and_are_deterministic(server, penalty):
    sampling = dict(temperature=0, **biased((40, 8), (41, 8)))
    plain = ids_of(server, sampling=sampling, max_tokens=60)
    first, second = (
        ids_of(server, sampling=dict(sampling, **penalty), max_tokens=60) for _ in range(2)
    )
    assert first == second
    assert first != plain


# ---- Lengths -------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 2, 8, 20])
def test_max_tokens_gives_exactly_as_many(server, count):
    request = text_request(max_tokens=count, ignore_end_token=True)
    answer = Answer(server.stub().Generate(request))
    assert len(answer.token_ids) == count
    assert answer.finished.usage.completion_tokens == count
    assert answer.finished.stop_cause == pb.STOP_CAUSE_MAX_TOKENS
    assert answer.finished.finish_reason == pb.FINISH_REASON_LENGTH


def test_an_answer_without_a_limit_ends_with_the_context(start, tiny_model):
    server = start(tiny_model, "--model.context", "128").wait_ready()
    prompt = pb.TokenIds(ids=[7] * 100)
    for limit in (None, 500, 2**63 - 1):
        request = pb.GenerateRequest(token_ids=prompt, ignore_end_token=True, max_tokens=limit)
        answer = server.stub().GenerateUnary(request)
        assert len(answer.token_ids) == 28
        assert answer.finished.finish_reason == pb.FINISH_REASON_LENGTH
        assert answer.finished.stop_cause == pb.STOP_CAUSE_CONTEXT
    eventually(server.idle, "idle")


def test_no_end_token_comes_before_min_tokens(server, end_tokens):
    wanted = biased(*((token, 100) for token in end_tokens), seed=3)
    answer = server.stub().GenerateUnary(text_request(sampling=wanted, max_tokens=9))
    assert answer.finished.usage.completion_tokens == 1
    assert answer.finished.stop_cause == pb.STOP_CAUSE_END_TOKEN
    for least in (1, 5, 9):
        answer = server.stub().GenerateUnary(
            text_request(sampling=wanted, max_tokens=9, min_tokens=least)
        )
        # The end token counts, but is not shown.
        assert not set(answer.token_ids) & set(end_tokens)
        assert len(answer.token_ids) == least
        assert answer.finished.usage.completion_tokens == min(least + 1, 9)


def test_no_stop_token_comes_before_min_tokens(server):
    request = text_request(
        sampling=biased((40, 100)), stop_token_ids=[40], max_tokens=20, min_tokens=6
    )
    answer = server.stub().GenerateUnary(request)
    assert 40 not in answer.token_ids
    assert len(answer.token_ids) == 6
    assert answer.finished.usage.completion_tokens == 7
    assert answer.finished.stop_cause == pb.STOP_CAUSE_STOP_TOKEN


REFUSED = {
    "best_of": dict(best_of=2),
    "n": [dict(n=0), dict(n=-1), dict(n=17), dict(n=INT32_MAX)],
    "priority": [dict(priority=4), dict(priority=-1)],
    "deadline_ms": [dict(deadline_ms=0), dict(deadline_ms=-5), dict(deadline_ms=86_400_001)],
    "min_tokens": [dict(min_tokens=-1), dict(min_tokens=5), dict(min_tokens=2**63 - 1)],
    "logprobs": [dict(logprobs=-1), dict(logprobs=21), dict(logprobs=INT32_MAX)],
    "prompt_logprobs": [dict(prompt_logprobs=-1), dict(prompt_logprobs=21)],
    "max_tokens": [dict(max_tokens=0), dict(max_tokens=-1), dict(max_tokens=-(2**63))],
    "cache_salt": dict(cache_salt="s" * 257),
    "typical_p": [dict(sampling=dict(typical_p=v)) for v in (0, 1.1, -1, float("nan"))],
    "top_p": [dict(sampling=dict(top_p=v)) for v in (0, 1.0000001, -0.1, float("inf"))],
    "min_p": [dict(sampling=dict(min_p=v)) for v in (1.1, -0.1, float("nan"))],
    "repetition_penalty": [
        dict(sampling=dict(repetition_penalty=v)) for v in (0, 10.1, -1, float("nan"))
    ],
    "presence_penalty": [dict(sampling=dict(presence_penalty=v)) for v in (2.1, -2.1)],
    "frequency_penalty": [
        dict(sampling=dict(frequency_penalty=v)) for v in (2.1, -2.1, float("inf"))
    ],
}


@pytest.mark.parametrize("field", REFUSED)
def test_a_value_out_of_range_is_refused_by_name_before_any_token(server, field):
    before = server.metric("renga_generated_tokens_total")
    cases = REFUSED[field]
    for fields in cases if isinstance(cases, list) else [cases]:
        request = text_request(**{"max_tokens": 4, **fields})
        answer = Answer(server.stub().Generate(request))
        assert answer.order == [], fields
        assert answer.error.code() == grpc.StatusCode.INVALID_ARGUMENT, fields
        assert answer.error.details().startswith(field), answer.error.details()
    assert server.metric("renga_generated_tokens_total") == before


LEGAL = [
    dict(n=16, max_tokens=2),
    dict(priority=pb.PRIORITY_LOW),
    dict(priority=pb.PRIORITY_HIGH),
    dict(deadline_ms=86_400_000),
    dict(min_tokens=4),
    dict(logprobs=0),
    dict(logprobs=20),
    dict(cache_salt="s" * 256),
    dict(sampling=dict(repetition_penalty=10, presence_penalty=-2, frequency_penalty=-2)),
]


@pytest.mark.parametrize("fields", LEGAL, ids=lambda f: ",".join(f))
def test_values_at_the_borders_are_legal(server, fields):
    request = text_request(**{"max_tokens": 4, **fields})
    assert server.stub().GenerateUnary(request).finished.finish_reason


def test_the_server_is_as_before(server):
    assert server.check() == "SERVING"
    eventually(server.idle, "idle")
