"""Equal beginnings are computed once, never wrongly, and never across namespaces."""

import pytest
from conftest import Answer, eventually, in_threads, pb

PAGE = 64


def request(ids, **fields):
    return pb.GenerateRequest(
        token_ids=pb.TokenIds(ids=ids),
        sampling=pb.SamplingParams(temperature=0),
        **{"max_tokens": 6, "ignore_end_token": True, "logprobs": 2, **fields},
    )


def prompt(number, length):
    """A beginning that no other number has."""
    return [3 + number, *((number * 31 + 7 * i) % 250 for i in range(1, length))]


def ask(server, ids, **options):
    fields = {k: v for k, v in options.items() if k != "metadata"}
    return server.stub().GenerateUnary(
        request(ids, **fields), metadata=options.get("metadata", ())
    )


def answer_of(message):
    return list(message.token_ids), [e.SerializeToString() for e in message.logprobs]


LENGTHS = [1, 2, PAGE - 1, PAGE, PAGE + 1, 2 * PAGE, 2 * PAGE + 1, 5 * PAGE + 17]


@pytest.mark.parametrize("length", LENGTHS)
def test_a_prompt_that_is_cached_gives_the_cold_answer(server, length):
    ids = prompt(100 + LENGTHS.index(length), length)
    cold = ask(server, ids, no_cache=True)
    assert cold.started.cached_tokens == 0
    assert cold.started.kv_source == pb.KV_SOURCE_COMPUTED
    runs = [ask(server, ids) for _ in range(3)]
    for run in runs:
        assert answer_of(run) == answer_of(cold)
        assert run.started.cached_tokens <= length - 1
        assert run.finished.usage.cached_tokens == run.started.cached_tokens
        assert run.finished.usage.prompt_tokens == length
        found = run.started.cached_tokens > 0
        expected = pb.KV_SOURCE_PREFIX_CACHE if found else pb.KV_SOURCE_COMPUTED
        assert run.started.kv_source == expected
    assert runs[0].started.cached_tokens == 0
    if length > PAGE:
        assert runs[1].started.cached_tokens >= (length - 1) // PAGE * PAGE


def test_a_beginning_and_a_continuation_of_a_cached_prompt_are_right(server):
    ids = prompt(1, 3 * PAGE + 10)
    ask(server, ids)
    other = [*ids[: 2 * PAGE + 5], *prompt(2, 40)]
    for cut in (ids[:1], ids[:PAGE], ids[: PAGE + 30], ids + prompt(3, 90), other):
        cold = ask(server, cut, no_cache=True)
        assert answer_of(ask(server, cut)) == answer_of(cold)
        assert answer_of(ask(server, cut)) == answer_of(cold)


def test_an_answer_is_part_of_the_next_prompt(server):
    ids = prompt(4, 2 * PAGE)
    first = ask(server, ids, max_tokens=2 * PAGE)
    following = [*ids, *first.token_ids, 5, 6, 7]
    second = ask(server, following)
    assert second.started.cached_tokens >= 3 * PAGE
    assert answer_of(second) == answer_of(ask(server, following, no_cache=True))


def test_no_cache_neither_reads_nor_leaves_anything(server):
    ids = prompt(5, 3 * PAGE)
    assert ask(server, ids, no_cache=True).started.cached_tokens == 0
    assert ask(server, ids).started.cached_tokens == 0
    assert ask(server, ids, no_cache=True).started.cached_tokens == 0
    assert ask(server, ids).started.cached_tokens > 0


def namespaces():
    def tenant(name):
        return (("x-tenant-id", name),)

    return [
        dict(),
        dict(cache_salt="a"),
        dict(cache_salt="b"),
        dict(metadata=tenant("a")),
        dict(metadata=tenant("ab"), cache_salt="c"),
        dict(metadata=tenant("a"), cache_salt="bc"),
        dict(metadata=tenant("abc")),
        dict(cache_salt="abc"),
        dict(metadata=tenant("2"), cache_salt=":x"),
        dict(metadata=tenant("2:"), cache_salt="x"),
    ]


def test_no_namespace_sees_what_another_one_has_cached(server):
    ids = prompt(6, 3 * PAGE)
    reference = answer_of(ask(server, ids, no_cache=True))
    for options in namespaces():
        first, second = ask(server, ids, **options), ask(server, ids, **options)
        assert first.started.cached_tokens == 0, options
        assert second.started.cached_tokens > 0, options
        assert answer_of(first) == answer_of(second) == reference


def test_the_cache_can_be_switched_off(start, tiny_model):
    server = start(tiny_model, "--kv.prefix_cache", "false").wait_ready()
    for _ in range(3):
        assert ask(server, prompt(7, 3 * PAGE)).started.cached_tokens == 0
    assert server.metric("renga_kv_pages_cached") == 0


def test_answers_are_right_while_cached_pages_are_given_up(start, tiny_model):
    """A pool of few pages, many prompts with shared beginnings, all at the same time."""
    page_bytes = 2 * 2 * 2 * 16 * 64 * 2
    server = start(tiny_model, "--kv.pool_bytes", str(24 * page_bytes)).wait_ready()
    prompts = [
        [*prompt(i % 3, PAGE * (1 + i % 4) + 9), *prompt(20 + i, 10 + i)] for i in range(24)
    ]
    cold = [answer_of(ask(server, ids, no_cache=True)) for ids in prompts]
    stub = server.stub()
    for _ in range(3):
        answers = in_threads(
            [lambda ids=ids: stub.GenerateUnary(request(ids)) for ids in prompts]
        )
        assert [answer_of(a) for a in answers] == cold
    eventually(server.idle, "idle")
    load = stub.GetLoad(pb.GetLoadRequest())
    assert load.kv_pages_total == 24
    eventually(
        lambda: server.metric("renga_kv_pages_capacity") == 24, "the pool has 24 pages"
    )


def test_several_choices_use_the_cache_once(server):
    ids = prompt(8, 2 * PAGE + 3)
    many = request(ids, n=3)
    cold = Answer(server.stub().Generate(many))
    warm = Answer(server.stub().Generate(many))
    assert warm.started.cached_tokens > 0
    assert warm.choices == cold.choices
    assert warm.finished.usage.prompt_tokens == len(ids)
