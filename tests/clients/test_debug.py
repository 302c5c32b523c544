"""The flight recorder on the admin address, and the metrics beside it."""

import json

import pytest
from conftest import Server, eventually, pb, refused, text_request
from gateway_server import HttpServer


@pytest.fixture(scope="module")
def server(tiny_model):
    running = HttpServer(tiny_model, "--metrics.otel_aliases", "true").wait_ready()
    yield running
    running.stop_alive()


def trace_of(server, query=""):
    status, body = server.get("/debug/requests" + query)
    assert status == 200
    return json.loads(body)


def lanes(trace):
    """Name of each lane -> its events."""
    names = {
        e["tid"]: e["args"]["name"] for e in trace["traceEvents"] if e["name"] == "thread_name"
    }
    found = {name: [] for name in names.values()}
    for event in trace["traceEvents"]:
        if event["ph"] != "M":
            found[names[event["tid"]]].append(event)
    return found


def test_a_request_can_be_followed_from_its_arrival_to_its_end(server):
    stub = server.stub()
    answer = stub.GenerateUnary(
        text_request("a secret prompt", max_tokens=6, ignore_end_token=True)
    )
    number = answer.started.request_id
    trace = trace_of(server)
    events = lanes(trace)[f"request {number}"]
    names = [e["name"] for e in events]
    wanted = ["tokenise", "queue", "prefill", "first token", "decode", "worst gap"]
    assert [n for n in names[1:] if n in wanted] == wanted
    whole = events[0]
    assert whole["args"]["outcome"] == "length"
    assert whole["args"]["tokens"] == 6
    end = whole["ts"] + whole["dur"]
    starts = [e["ts"] for e in events[1:-1]]
    assert starts == sorted(starts)
    for event in events:
        assert whole["ts"] <= event["ts"] <= end
    assert lanes(trace)["steps"]
    assert "secret" not in json.dumps(trace)


def test_warm_up_and_refusals_leave_no_timeline(server):
    before = len(lanes(trace_of(server)))
    refused(server.stub().GenerateUnary, pb.GenerateRequest(text="x", model="other"))
    assert len(lanes(trace_of(server))) == before


def test_slow_ones_can_be_asked_for_alone(start, tiny_model):
    server = start(tiny_model, "--debug.slow_ms", "3600000").wait_ready()
    server.stub().GenerateUnary(text_request(max_tokens=2))
    assert len(lanes(trace_of(server))) == 2
    assert len(lanes(trace_of(server, "?slow=1"))) == 1
    assert server.get("/debug/requests?slow=2")[0] == 400
    assert server.get("/debug")[0] == 404


def test_it_can_be_switched_off(start, tiny_model):
    server = start(tiny_model, "--debug.recorded_requests", "0").wait_ready()
    server.stub().GenerateUnary(text_request(max_tokens=2))
    assert list(lanes(trace_of(server))) == ["steps"]
    assert "gen_ai_" not in server.get("/metrics")[1]


def test_opentelemetrys_names_count_the_same_requests(server):
    before = server.metric("gen_ai_server_request_duration_seconds_count")
    requests = server.metric("renga_requests_total")
    server.stub().GenerateUnary(text_request(max_tokens=3))
    refused(server.stub().GenerateUnary, text_request(max_tokens=-1))
    assert server.metric("renga_requests_total") == requests + 2
    assert server.metric("gen_ai_server_request_duration_seconds_count") == before + 2
    for name in ("time_to_first_token", "time_per_output_token"):
        assert server.metric(f"gen_ai_server_{name}_seconds_count") >= 1


def test_the_gateways_metrics_stand_beside_the_servers(server):
    assert server.get_http("/v1/models")[0] == 200
    assert server.get_http("/made/up")[0] == 404
    count = "renga_gateway_requests_total"
    eventually(lambda: server.metric(count, route="other", code=404) == 1, "both are counted")
    assert server.metric(count, route="/v1/models", code=200) == 1
    assert "made" not in server.get("/metrics")[1]


def test_the_load_can_be_watched(server):
    stream = server.stub().WatchLoad(pb.WatchLoadRequest(interval_ms=100))
    loads = [next(stream) for _ in range(3)]
    assert all(load.ready for load in loads)
    stream.cancel()


def test_a_watch_ends_with_the_server(start, tiny_model):
    server = start(tiny_model).wait_ready()
    stream = server.stub().WatchLoad(pb.WatchLoadRequest(interval_ms=60000))
    next(stream)
    server.terminate()
    error = refused(lambda: next(stream))
    assert error.code().name == "UNAVAILABLE"
    assert server.wait_exit() == 0
