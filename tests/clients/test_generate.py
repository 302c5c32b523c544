"""Answers: stream and unary, alone and in company."""

import random
import threading

import grpc
import pytest
from conftest import Answer, PATIENCE, eventually, pb
from google.protobuf.descriptor_pool import DescriptorPool
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import (
    ProtoReflectionDescriptorDatabase,
)


def chat(content, **fields):
    message = pb.ChatMessage(role="user", content=content)
    return pb.GenerateRequest(chat=pb.Chat(messages=[message]), **fields)


def greedy():
    return pb.SamplingParams(temperature=0)


def test_a_stream_is_started_then_chunks_then_finished(server):
    answer = Answer(server.stub().Generate(chat("hi", max_tokens=8, sampling=greedy())))
    assert answer.error is None
    assert answer.order[0] == "started"
    assert answer.order[-1] == "finished"
    assert set(answer.order[1:-1]) <= {"chunk"}
    assert answer.started.prompt_tokens > 0
    assert answer.finished.usage.prompt_tokens == answer.started.prompt_tokens
    assert 1 <= answer.finished.usage.completion_tokens <= 8
    assert answer.started.model == server.stub().GetModel(pb.GetModelRequest()).name


REQUESTS = {
    "chat": lambda: chat("Tell me a story", max_tokens=40, sampling=greedy()),
    "text": lambda: pb.GenerateRequest(
        text="Once upon", max_tokens=40, sampling=pb.SamplingParams(seed=7)
    ),
    "token_ids": lambda: pb.GenerateRequest(
        token_ids=pb.TokenIds(ids=[5, 6, 7]),
        max_tokens=40,
        sampling=pb.SamplingParams(seed=1, temperature=0.8, top_k=20, top_p=0.9, min_p=0.01),
    ),
    "ignore_end_token": lambda: chat(
        "x", max_tokens=64, ignore_end_token=True, sampling=pb.SamplingParams(seed=2**64 - 1)
    ),
}


@pytest.mark.parametrize("kind", REQUESTS)
def test_stream_equals_unary_byte_for_byte(server, kind):
    request = REQUESTS[kind]()
    stream = Answer(server.stub().Generate(request))
    unary = server.stub().GenerateUnary(request)
    assert stream.error is None
    assert stream.text.encode() == unary.text.encode()
    assert stream.token_ids == list(unary.token_ids)
    assert stream.finished.finish_reason == unary.finished.finish_reason
    assert stream.finished.stop_cause == unary.finished.stop_cause
    # Of the two the second finds the prompt in the cache.
    assert stream.finished.usage.prompt_tokens == unary.finished.usage.prompt_tokens
    assert stream.finished.usage.completion_tokens == unary.finished.usage.completion_tokens
    if unary.finished.finish_reason == pb.FINISH_REASON_LENGTH:
        assert unary.finished.usage.completion_tokens == request.max_tokens


def test_a_stop_string_ends_the_answer_before_it(server):
    base = chat("Tell me", max_tokens=40, ignore_end_token=True, sampling=greedy())
    text = server.stub().GenerateUnary(base).text
    middle = len(text) // 2
    stop = text[middle : middle + 2]
    assert stop, text
    base.stop.append(stop)
    for answer in (
        Answer(server.stub().Generate(base)),
        server.stub().GenerateUnary(base),
    ):
        assert answer.text == text[: text.index(stop)]
        assert answer.finished.finish_reason == pb.FINISH_REASON_STOP
        assert answer.finished.stop_cause == pb.STOP_CAUSE_STOP_STRING
        assert answer.finished.stop_text == stop


def test_a_stop_token_ends_the_answer(server):
    base = chat("Tell me", max_tokens=20, ignore_end_token=True, sampling=greedy())
    ids = list(server.stub().GenerateUnary(base).token_ids)
    base.stop_token_ids.append(ids[5])
    answer = server.stub().GenerateUnary(base)
    assert answer.finished.stop_cause == pb.STOP_CAUSE_STOP_TOKEN
    assert answer.finished.usage.completion_tokens == ids.index(ids[5]) + 1


def test_tokenize_is_what_generate_computes(server):
    stub = server.stub()
    message = [pb.ChatMessage(role="user", content="What is 2+2? <|im_end|>")]
    ids = stub.Tokenize(pb.TokenizeRequest(chat=pb.Chat(messages=message))).token_ids
    by_chat = stub.GenerateUnary(
        pb.GenerateRequest(
            chat=pb.Chat(messages=message), max_tokens=8, sampling=greedy()
        )
    )
    by_ids = stub.GenerateUnary(
        pb.GenerateRequest(
            token_ids=pb.TokenIds(ids=ids), max_tokens=8, sampling=greedy()
        )
    )
    assert by_chat.started.prompt_tokens == len(ids)
    assert by_chat.token_ids == by_ids.token_ids


def test_detokenize_gives_the_text_back(server):
    text = "Hello, wörld \U0001f600\n"
    ids = server.stub().Tokenize(pb.TokenizeRequest(text=text)).token_ids
    assert server.stub().Detokenize(pb.DetokenizeRequest(token_ids=ids)).text == text


def test_reflection_lists_and_describes_the_services(server):
    channel = server.channel()
    stub = reflection_pb2_grpc.ServerReflectionStub(channel)
    ask = reflection_pb2.ServerReflectionRequest(list_services="")
    (answer,) = stub.ServerReflectionInfo(iter([ask]))
    names = {s.name for s in answer.list_services_response.service}
    assert {"renga.v1.Inference", "grpc.health.v1.Health"} <= names
    pool = DescriptorPool(ProtoReflectionDescriptorDatabase(channel))
    methods = pool.FindServiceByName("renga.v1.Inference").methods_by_name
    assert set(methods) == {
        "Generate",
        "GenerateUnary",
        "Tokenize",
        "Detokenize",
        "GetModel",
        "GetLoad",
        "WatchLoad",
        "Cancel",
    }
    assert pool.FindServiceByName("grpc.health.v1.Health").methods_by_name["Watch"]


def test_x_request_id_comes_back(server):
    call = server.stub().Generate(
        chat("hi", max_tokens=1), metadata=(("x-request-id", "abc-1"),)
    )
    assert ("x-request-id", "abc-1") in [tuple(m) for m in call.initial_metadata()]
    assert Answer(call).error is None


def test_64_streams_at_once_each_equal_their_run_alone(server):
    dice = random.Random(3)
    requests = []
    for i in range(64):
        prompt = "".join(dice.choice("abcdefgh ") for _ in range(dice.randrange(1, 200)))
        sampling = (
            greedy()
            if i % 3 == 0
            else pb.SamplingParams(seed=i, temperature=0.5 + i / 64, top_k=i % 5 * 10)
        )
        requests.append(
            chat(
                prompt,
                max_tokens=dice.randrange(1, 40),
                ignore_end_token=i % 2 == 0,
                sampling=sampling,
            )
        )
    alone = [Answer(server.stub().Generate(r)) for r in requests]
    together = [None] * len(requests)
    barrier = threading.Barrier(len(requests))

    def run(i):
        stub = server.stub(server.channel() if i % 4 == 0 else shared)
        barrier.wait(PATIENCE)
        together[i] = Answer(stub.Generate(requests[i]))

    shared = server.channel()
    threads = [threading.Thread(target=run, args=(i,)) for i in range(len(requests))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for i, (one, many) in enumerate(zip(alone, together)):
        assert one.error is None, one.error
        assert many.error is None, many.error
        assert many.same_tokens(one), i
        assert many.finished.usage.completion_tokens == one.finished.usage.completion_tokens
    eventually(lambda: server.metric("renga_requests_running") == 0, "idle")
