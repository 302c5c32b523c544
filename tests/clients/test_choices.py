"""Several answers to one prompt; how answers end, and what they are billed."""

import pytest
from conftest import Answer, eventually, in_threads, pb, text_request


@pytest.fixture(scope="module")
def end_token(server):
    return server.stub().GetModel(pb.GetModelRequest()).end_token_ids[0]


def seeded(**fields):
    sampling = dict(seed=9, temperature=1.3)
    return text_request("Tell me", **{"sampling": sampling, "max_tokens": 24, **fields})


REQUESTS = {
    "two": dict(n=2, ignore_end_token=True),
    "three that may end early": dict(n=3, max_tokens=60),
    "sixteen": dict(n=16, max_tokens=5),
    "with stop strings": dict(n=4, stop=["e", "a", "\n"], max_tokens=60),
    "with logprobs": dict(n=3, logprobs=3, prompt_logprobs=2, echo=True),
    "greedy": dict(n=3, sampling=dict(temperature=0)),
    "one": dict(n=1),
}


@pytest.mark.parametrize("name", REQUESTS)
def test_stream_equals_unary_choice_by_choice(server, name):
    request = seeded(**REQUESTS[name])
    stream = Answer(server.stub().Generate(request))
    stream.assert_equals_unary(server.stub().GenerateUnary(request))
    assert [c.choice for c in stream.finished.choices] == list(range(request.n))


def test_choice_0_is_the_answer_to_the_single_request_and_others_differ(server):
    single = server.stub().GenerateUnary(seeded(ignore_end_token=True))
    many = server.stub().GenerateUnary(seeded(ignore_end_token=True, n=4))
    assert many.text == single.text
    assert list(many.token_ids) == list(single.token_ids)
    answers = {tuple(many.token_ids), *(tuple(c.token_ids) for c in many.more_choices)}
    assert len(answers) == 4


def test_greedy_choices_are_all_the_same(server):
    greedy = dict(temperature=0)
    answer = server.stub().GenerateUnary(seeded(n=3, sampling=greedy))
    for choice in answer.more_choices:
        assert list(choice.token_ids) == list(answer.token_ids)


def test_each_choice_ends_exactly_once_and_nothing_follows_it(server):
    request = seeded(n=5, stop=["e"], max_tokens=60)
    ended = set()
    for message in server.stub().Generate(request):
        event = message.WhichOneof("event")
        if event == "chunk":
            assert message.chunk.choice not in ended
            assert message.chunk.text or message.chunk.token_ids
        elif event == "choice_finished":
            assert message.choice_finished.choice not in ended
            assert message.choice_finished.finish_reason
            ended.add(message.choice_finished.choice)
        elif event == "finished":
            assert ended == set(range(5))


def test_usage_is_the_sum_over_the_choices_and_the_prompt_counts_once(server):
    single = server.stub().GenerateUnary(seeded(ignore_end_token=True))
    answer = server.stub().GenerateUnary(seeded(n=3, stop=["e"], max_tokens=60))
    usage = answer.finished.usage
    assert usage.prompt_tokens == single.finished.usage.prompt_tokens
    assert usage.completion_tokens == sum(
        choice.completion_tokens for choice in answer.finished.choices
    )
    shown = [len(answer.token_ids), *(len(c.token_ids) for c in answer.more_choices)]
    for count, choice in zip(shown, answer.finished.choices):
        # An end token counts, but is not shown.
        ended = choice.stop_cause == pb.STOP_CAUSE_END_TOKEN
        assert choice.completion_tokens == count + ended


@pytest.mark.parametrize("limit", [1, 5, 20])
def test_every_choice_gets_max_tokens_of_its_own(server, limit):
    answer = server.stub().GenerateUnary(
        seeded(n=3, max_tokens=limit, ignore_end_token=True)
    )
    assert answer.finished.usage.completion_tokens == 3 * limit
    for choice in answer.finished.choices:
        assert choice.stop_cause == pb.STOP_CAUSE_MAX_TOKENS


def test_every_end_has_its_reason(server, end_token):
    """By the end token, a stop string, max_tokens; the end token as the last allowed one."""
    wanted = dict(temperature=0, logit_bias=[pb.LogitBias(token_id=end_token, bias=100)])
    letter = server.stub().Tokenize(pb.TokenizeRequest(text="q")).token_ids[0]
    letters = dict(temperature=0, logit_bias=[pb.LogitBias(token_id=letter, bias=100)])
    runs = [
        (dict(sampling=wanted, max_tokens=9), "STOP", "END_TOKEN", 1),
        (dict(sampling=letters, max_tokens=9, stop=["qqq"]), "STOP", "STOP_STRING", 3),
        (dict(sampling=letters, max_tokens=9), "LENGTH", "MAX_TOKENS", 9),
        (dict(sampling=wanted, max_tokens=1), "STOP", "END_TOKEN", 1),
        (dict(sampling=letters, max_tokens=4, stop_token_ids=[letter]), "STOP", "STOP_TOKEN", 1),
    ]
    for fields, reason, cause, tokens in runs:
        for n in (1, 2):
            request = text_request(n=n, **fields)
            stream = Answer(server.stub().Generate(request))
            stream.assert_equals_unary(server.stub().GenerateUnary(request))
            assert stream.order[-1] == "finished"
            assert stream.order.count("finished") == 1
            for end in (stream.finished, *stream.finished.choices):
                assert pb.FinishReason.Name(end.finish_reason) == f"FINISH_REASON_{reason}"
                assert pb.StopCause.Name(end.stop_cause) == f"STOP_CAUSE_{cause}"
                assert end.stop_text == ("qqq" if cause == "STOP_STRING" else "")
            assert stream.finished.usage.completion_tokens == n * tokens
            assert len(stream.ends) == (n if n > 1 else 0)


def test_choices_share_their_prompt_and_leave_nothing(server):
    requests = [seeded(n=n, max_tokens=30) for n in (1, 2, 5, 16)]
    alone = [server.stub().GenerateUnary(r) for r in requests]
    stub = server.stub()
    together = in_threads([lambda r=r: stub.GenerateUnary(r) for r in requests])
    for one, other in zip(alone, together):
        assert list(one.token_ids) == list(other.token_ids)
        assert list(one.more_choices) == list(other.more_choices)
    eventually(server.idle, "idle")


def test_a_cancelled_request_frees_all_its_choices(server):
    call = server.stub(server.slow_channel()).Generate(
        text_request(n=8, max_tokens=400, ignore_end_token=True)
    )
    assert next(call).WhichOneof("event") == "started"
    call.cancel()
    eventually(server.idle, "idle")
