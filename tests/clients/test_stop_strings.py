"""Stop strings over token borders: nothing of them leaks, nothing is held for too long."""

import itertools

import pytest
from conftest import Answer, pb, text_request


@pytest.fixture(scope="module")
def letters(server):
    """The tokens that are ASCII letters alone, as biases: answers are then plain words."""
    size = server.stub().GetModel(pb.GetModelRequest()).vocab_size
    stub = server.stub()
    words = []
    for token in range(min(size, 2000)):
        text = stub.Detokenize(pb.DetokenizeRequest(token_ids=[token])).text
        if text.isascii() and text.isalpha():
            words.append(token)
    return [pb.LogitBias(token_id=token, bias=60) for token in words[:1000]]


class Reference:
    """An answer of letters, token by token."""

    def __init__(self, server, letters, tokens=60):
        self.server = server
        self.fields = dict(
            sampling=dict(seed=8, temperature=2, logit_bias=letters),
            ignore_end_token=True,
            max_tokens=tokens,
        )
        answer = server.stub().GenerateUnary(text_request(logprobs=0, **self.fields))
        self.text = answer.text
        self.pieces = [entry.token.decode() for entry in answer.logprobs]
        assert "".join(self.pieces) == self.text
        self.borders = [0, *itertools.accumulate(len(p) for p in self.pieces)]

    def expected(self, stops):
        """(text, stop, tokens) by the rule: after each token, the match that starts first."""
        for i, end in enumerate(self.borders[1:], 1):
            so_far = self.text[:end]
            found = [(so_far.index(s), order) for order, s in enumerate(stops) if s in so_far]
            if found:
                at, order = min(found)
                return so_far[:at], stops[order], i
        return self.text, "", len(self.pieces)

    def check(self, stops):
        text, stop, tokens = self.expected(stops)
        request = text_request(stop=stops, **self.fields)
        stream = Answer(self.server.stub().Generate(request))
        stream.assert_equals_unary(self.server.stub().GenerateUnary(request))
        assert stream.text == text
        assert stream.finished.stop_text == stop
        assert stream.finished.usage.completion_tokens == tokens
        if stop:
            assert stream.finished.finish_reason == pb.FINISH_REASON_STOP
            assert stream.finished.stop_cause == pb.STOP_CAUSE_STOP_STRING
        return stream


@pytest.fixture(scope="module")
def reference(server, letters):
    return Reference(server, letters)


@pytest.mark.parametrize("pieces", [1, 2, 3, 5])
def test_a_stop_string_over_several_tokens_is_seen_and_never_shown(reference, pieces):
    for first in (0, 7, 20):
        begin, end = reference.borders[first], reference.borders[first + pieces]
        stream = reference.check([reference.text[begin:end]])
        assert stream.finished.stop_text not in stream.text


def test_a_stop_string_may_begin_and_end_inside_a_token(reference):
    long = [i for i, piece in enumerate(reference.pieces) if len(piece) > 1]
    if not long:
        pytest.skip("this model's answer has no token of several letters")
    at = reference.borders[long[0]] + 1
    reference.check([reference.text[at : at + 4]])


def test_of_overlapping_stop_strings_the_one_that_starts_first_wins(reference):
    text = reference.text
    for begin in (3, 11):
        a, b = text[begin : begin + 6], text[begin + 2 : begin + 6]
        for stops in ([a, b], [b, a]):
            reference.check(stops)


def test_a_beginning_that_does_not_go_on_is_shown(reference):
    text = reference.text
    stops = [text[3:6] + "QQQ", text[12:15] + "Q", text[30:34]]
    reference.check(stops)


def test_held_back_text_arrives_when_the_answer_ends_otherwise(reference):
    stop = reference.text[-3:] + "QQQQQQQQ"
    stream = reference.check([stop])
    assert stream.text == reference.text
    assert stream.finished.stop_cause == pb.STOP_CAUSE_MAX_TOKENS


def test_a_long_stop_string_that_never_begins_holds_nothing_back(reference):
    plain = Answer(reference.server.stub().Generate(text_request(**reference.fields)))
    stream = reference.check(["0123456789" * 20])
    assert [(c.text, list(c.token_ids)) for c in stream.chunks] == [
        (c.text, list(c.token_ids)) for c in plain.chunks
    ]


def test_every_chunk_says_something(reference):
    stream = reference.check([reference.text[20:40] + "Q"])
    assert all(chunk.text or chunk.token_ids for chunk in stream.chunks)


def test_no_stop_string_is_looked_for_before_min_tokens(reference):
    stop = reference.text[:2]
    request = text_request(stop=[stop], min_tokens=30, **reference.fields)
    answer = reference.server.stub().GenerateUnary(request)
    assert answer.finished.usage.completion_tokens >= 30
    assert answer.text.startswith(stop)
