"""Bad input gets an error that names the field, and harms nobody else."""

import conftest
import grpc
import pytest
from conftest import Answer, eventually, make_tiny_model, pb


def refused(call, *arguments, **options):
    error = conftest.refused(call, *arguments, **options)
    return error.code(), error.details()


def text(**fields):
    return pb.GenerateRequest(**{"text": "hi", "max_tokens": 4, **fields})


def sampling(**fields):
    return text(sampling=pb.SamplingParams(**fields))


INVALID = {
    "no input": (pb.GenerateRequest(), "input"),
    "max_tokens 0": (text(max_tokens=0), "max_tokens"),
    "max_tokens -1": (text(max_tokens=-1), "max_tokens"),
    "temperature -1": (sampling(temperature=-1), "temperature"),
    "temperature nan": (sampling(temperature=float("nan")), "temperature"),
    "temperature inf": (sampling(temperature=float("inf")), "temperature"),
    "top_p 0": (sampling(top_p=0), "top_p"),
    "top_p 1.1": (sampling(top_p=1.1), "top_p"),
    "top_p nan": (sampling(top_p=float("nan")), "top_p"),
    "min_p -0.1": (sampling(min_p=-0.1), "min_p"),
    "min_p 1.1": (sampling(min_p=1.1), "min_p"),
    "top_k -2": (sampling(top_k=-2), "top_k"),
    "empty stop": (text(stop=["a", ""]), "stop"),
    "1000 stops": (text(stop=["a"] * 1000), "stop"),
    "stop_token_ids -1": (text(stop_token_ids=[-1]), "stop_token_ids"),
    "stop_token_ids 2^31-1": (text(stop_token_ids=[2**31 - 1]), "stop_token_ids"),
    "no ids": (pb.GenerateRequest(token_ids=pb.TokenIds()), "token_ids"),
    "id -1": (pb.GenerateRequest(token_ids=pb.TokenIds(ids=[5, -1])), "token_ids"),
    "id too large": (
        pb.GenerateRequest(token_ids=pb.TokenIds(ids=[2**31 - 1])),
        "token_ids",
    ),
    "no messages": (pb.GenerateRequest(chat=pb.Chat()), "messages"),
    "unknown role": (
        pb.GenerateRequest(chat=pb.Chat(messages=[pb.ChatMessage(role="king")])),
        "messages",
    ),
}


@pytest.mark.parametrize("case", INVALID)
def test_invalid_values_are_refused_by_field(server, case):
    request, field = INVALID[case]
    streamed = Answer(server.stub().Generate(request))
    assert streamed.order == []
    assert streamed.error.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert field in streamed.error.details().split(":")[0]
    code, details = refused(server.stub().GenerateUnary, request)
    assert code == grpc.StatusCode.INVALID_ARGUMENT
    assert details == streamed.error.details()


def test_the_first_id_outside_the_vocabulary_is_refused_and_the_last_inside_works(server):
    size = server.stub().GetModel(pb.GetModelRequest()).vocab_size
    code, details = refused(
        server.stub().GenerateUnary,
        pb.GenerateRequest(token_ids=pb.TokenIds(ids=[size]), max_tokens=1),
    )
    assert code == grpc.StatusCode.INVALID_ARGUMENT
    assert str(size) in details
    server.stub().GenerateUnary(
        pb.GenerateRequest(token_ids=pb.TokenIds(ids=[size - 1]), max_tokens=1)
    )


LEGAL = [
    dict(top_k=0),
    dict(top_k=-1),
    dict(top_k=2**31 - 1),
    dict(top_p=1),
    dict(top_p=1e-9),
    dict(min_p=1),
    dict(temperature=100),
    dict(temperature=0),
    dict(seed=0),
    dict(seed=2**64 - 1),
]


@pytest.mark.parametrize("fields", LEGAL, ids=str)
def test_values_at_the_borders_are_legal(server, fields):
    assert server.stub().GenerateUnary(sampling(**fields)).finished.finish_reason


def test_a_vast_max_tokens_is_cut_to_the_context(server):
    size = server.stub().GetModel(pb.GetModelRequest()).context_length
    ids = pb.TokenIds(ids=[7] * (size - 3))
    answer = server.stub().GenerateUnary(
        pb.GenerateRequest(token_ids=ids, max_tokens=2**63 - 1, ignore_end_token=True)
    )
    assert answer.finished.finish_reason == pb.FINISH_REASON_LENGTH
    assert answer.finished.stop_cause == pb.STOP_CAUSE_CONTEXT
    assert answer.finished.usage.completion_tokens == 3


@pytest.mark.parametrize("number", [20, 29, 536870911])
def test_an_unknown_field_is_refused_by_its_number(server, number):
    raw = server.channel().unary_unary("/renga.v1.Inference/GenerateUnary")
    tag = number << 3
    field = b""
    while tag >= 128:
        field += bytes([tag & 127 | 128])
        tag >>= 7
    field += bytes([tag, 1])
    code, details = refused(raw, text().SerializeToString() + field)
    assert code == grpc.StatusCode.INVALID_ARGUMENT
    assert f"unknown field {number} " in details


def test_text_that_is_not_utf8_is_refused_by_field(server):
    raw = server.channel().unary_unary("/renga.v1.Inference/GenerateUnary")
    code, details = refused(raw, b"\x12\x02a\xff")
    assert code == grpc.StatusCode.INVALID_ARGUMENT
    assert details.startswith("text: ")


def test_bytes_that_are_no_message_are_refused(server):
    raw = server.channel().unary_unary("/renga.v1.Inference/GenerateUnary")
    code, _ = refused(raw, b"\xff\xff\xff\xff")
    assert code == grpc.StatusCode.INVALID_ARGUMENT


def test_another_model_is_not_found(server):
    code, details = refused(server.stub().GenerateUnary, text(model="gpt-5"))
    assert code == grpc.StatusCode.NOT_FOUND
    assert details.startswith("model: ")
    name = server.stub().GetModel(pb.GetModelRequest()).name
    for good in ("", "default", name):
        assert server.stub().GenerateUnary(text(model=good)).finished.finish_reason


def test_detokenize_refuses_ids_outside_the_vocabulary(server):
    for ids in ([-1], [2**31 - 1]):
        code, details = refused(
            server.stub().Detokenize, pb.DetokenizeRequest(token_ids=ids)
        )
        assert code == grpc.StatusCode.INVALID_ARGUMENT
        assert "token_ids" in details


def test_a_prompt_longer_than_the_context_is_refused_with_both_numbers(server):
    size = server.stub().GetModel(pb.GetModelRequest()).context_length
    for length in (size, size + 1, 3 * size):
        code, details = refused(
            server.stub().GenerateUnary,
            pb.GenerateRequest(token_ids=pb.TokenIds(ids=[7] * length), max_tokens=1),
        )
        assert code == grpc.StatusCode.INVALID_ARGUMENT
        assert str(size) in details
        assert str(length) in details or str(length + 1) in details
    fits = pb.GenerateRequest(token_ids=pb.TokenIds(ids=[7] * (size - 1)), max_tokens=1)
    assert server.stub().GenerateUnary(fits).started.prompt_tokens == size - 1


def test_a_prompt_larger_than_the_pool_is_refused_with_both_numbers(start, tmp_path):
    shape = dict(layers=2, kv_heads=2, head_dim=16)
    model = make_tiny_model(tmp_path / "m.gguf", context=4096, **shape)
    page_bytes = 2 * 2 * 2 * 16 * 64 * 2
    server = start(model, "--kv.pool_bytes", str(6 * page_bytes)).wait_ready()
    code, details = refused(
        server.stub().GenerateUnary,
        pb.GenerateRequest(token_ids=pb.TokenIds(ids=[7] * 1000), max_tokens=1),
    )
    assert code == grpc.StatusCode.INVALID_ARGUMENT
    assert "384" in details or "6" in details.split()
    assert "1000" in details or "1001" in details or "16" in details.split()
    # What fits works, and an answer that outgrows the pool ends with a length.
    answer = server.stub().GenerateUnary(
        pb.GenerateRequest(token_ids=pb.TokenIds(ids=[7] * 300), ignore_end_token=True)
    )
    assert answer.finished.stop_cause == pb.STOP_CAUSE_POOL


def test_a_message_at_the_limit_works_and_one_byte_more_does_not(start, tiny_model):
    server = start(tiny_model, "--grpc.max_message_bytes", "2000").wait_ready()

    def message(size):
        request = pb.GenerateRequest(text="a" * (size - 5), max_tokens=1)
        assert request.ByteSize() == size
        return request

    assert server.stub().GenerateUnary(message(2000)).started.prompt_tokens
    code, _ = refused(server.stub().GenerateUnary, message(2001))
    assert code == grpc.StatusCode.RESOURCE_EXHAUSTED


def test_a_context_of_text_is_within_the_default_message_size(server):
    size = server.stub().GetModel(pb.GetModelRequest()).context_length
    long = "a" * 200_000
    code, details = refused(server.stub().GenerateUnary, text(text=long * 10))
    assert code == grpc.StatusCode.INVALID_ARGUMENT, details
    assert str(size) in details


def test_a_compressed_message_is_refused(server):
    code, _ = refused(
        server.stub().GenerateUnary,
        text(text="a" * 10_000),
        compression=grpc.Compression.Gzip,
    )
    assert code == grpc.StatusCode.UNIMPLEMENTED


def test_the_server_is_as_before(server):
    assert server.check() == "SERVING"
    assert server.stub().GenerateUnary(text()).finished.finish_reason
    eventually(lambda: server.metric("renga_requests_running") == 0, "idle")
