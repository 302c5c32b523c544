"""The real Prometheus scrapes a real server under a little traffic: every query finds its data."""

import contextlib
import http.client
import json
import math
import re

import pytest
from conftest import ROOT, clients, dashboard, rules
from prometheus_server import Prometheus
from promql import families_of, family, names, selectors

# Without these, nothing on the board is wrong: they have data only when something happens
# that the traffic here does not bring about.
IDLE = {
    "Restarts": "an annotation: only where the process has restarted",
    "Alerts": "an annotation: only while an alert fires",
}

# What only a server on a GPU exports. There is none here: the names are those of the source.
GPU_FAMILIES = set(re.findall(r'"(renga_gpu_\w+)"', (ROOT / "src/metrics/device_metrics.cc").read_text()))

# Families that are shown nowhere, and why.
NOT_SHOWN = {}

TOGETHER = 6  # Requests that are sent at the same time.
ANSWERED = 1 + 2 * TOGETHER


def ask(address, text, **fields):
    """(status, body) of one streamed chat over HTTP."""
    connection = http.client.HTTPConnection(address, timeout=clients.PATIENCE)
    message = {"role": "user", "content": text}
    body = {"model": "default", "messages": [message], "max_tokens": 16, "stream": True, **fields}
    headers = {"Content-Type": "application/json"}
    with contextlib.closing(connection):
        connection.request("POST", "/v1/chat/completions", json.dumps(body), headers)
        answer = connection.getresponse()
        return answer.status, answer.read()


def make_traffic(server, prometheus):
    address = server.wait_event("listening")["gateway"]
    # Series of the gateway begin with their first request: it must not be the only one.
    assert ask(address, "the first")[0] == 200
    clients.eventually(lambda: prometheus.query("renga_gateway_requests_total"), "a scrape")
    long = "What do you see? " * 40
    for _ in range(2):  # The second time from the cache.
        asked = [lambda i=i: ask(address, f"{long} {i}") for i in range(TOGETHER)]
        assert {status for status, _ in clients.in_threads(asked)} == {200}
    assert ask(address, "no", top_p=7)[0] == 400
    clients.stalled_stream(server)[0].cancel()
    clients.eventually(lambda: server.metric("renga_cancellations_total") == 1, "a cancelled request")
    clients.eventually(server.idle, "idle")


class Observed:
    """What is there to be asked: the server's own text, and Prometheus."""

    def __init__(self, server, prometheus):
        self.prometheus = prometheus
        self.exposition = server.get("/metrics")[1]
        self.families = families_of(self.exposition)
        self.recorded = {rule["record"] for rule in rules("recording")}

    def unknown(self, expression):
        """Names in the expression that nobody exports."""
        known = self.recorded | {"up", "ALERTS"}
        return {n for n in names(expression) if n not in known and not family(n, self.families)}

    def assert_selects(self, expression):
        """Each selector finds a series: a label or value that is not there finds none, for ever."""
        for name, matchers in selectors(expression):
            if name != "ALERTS":
                assert self.prometheus.query(name + matchers), f"{name}{matchers} in {expression}"


@pytest.fixture(scope="module")
def observed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ops")
    model = clients.make_tiny_model(folder / "tiny.gguf", context=4096)
    server = clients.Server(model, "--memory.check_interval_ms", "100").wait_ready()
    prometheus = None
    try:
        prometheus = Prometheus(folder, [server.admin_address])
        up = 'sum(up{job="renga"}) == 1 and on () sum(renga_ready) == 1'
        clients.eventually(lambda: prometheus.value(up), "a first scrape")
        make_traffic(server, prometheus)
        scraped = 'sum(renga_requests_total{outcome="ok"})'
        clients.eventually(lambda: prometheus.value(scraped) == ANSWERED, "a scrape of all")
        # None of them is NaN any more: each group has been evaluated after the traffic.
        numbers = 'count({__name__=~"model:.*"} >= 0)'
        wanted = sum(rule["record"].startswith("model:") for rule in rules("recording"))
        clients.eventually(lambda: prometheus.value(numbers) == wanted, "an evaluation")
        yield Observed(server, prometheus)
        server.stop_alive()
    finally:
        server.stop()
        if prometheus:
            prometheus.stop()


def filled_in(expression):
    """As Grafana asks it, with all models and instances chosen."""
    for variable, value in (("$__rate_interval", "1m"), ("$model", ".*"), ("$instance", ".*")):
        expression = expression.replace(variable, value)
    assert "$" not in expression, expression
    return expression


def queries():
    """[(title, expression), ...] of every panel and annotation."""
    board = dashboard()
    found = []
    for panel in board["panels"]:
        found += [(panel["title"], filled_in(t["expr"])) for t in panel.get("targets", [])]
    for annotation in board["annotations"]["list"]:
        if "expr" in annotation:
            found.append((annotation["name"], filled_in(annotation["expr"])))
    return found


@pytest.mark.parametrize("title, expression", queries(), ids=lambda text: re.sub(r"\W+", "_", text)[:40])
def test_each_query_of_the_board_has_data(observed, title, expression):
    if names(expression) & GPU_FAMILIES:
        assert names(expression) <= GPU_FAMILIES
        return
    assert not observed.unknown(expression)
    observed.assert_selects(expression)
    values = [value for _, value in observed.prometheus.query(expression)]
    if title in IDLE:
        assert not values, f"{title} has data: drop it from IDLE"
    else:
        assert not all(math.isnan(value) for value in values), f"{title}: {expression}"


def test_each_legend_uses_labels_that_the_answer_has(observed):
    for panel in dashboard()["panels"]:
        for target in panel.get("targets", []):
            wanted = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
            for labels, _ in observed.prometheus.query(filled_in(target["expr"])):
                assert wanted <= set(labels), f"{panel['title']}: {target['expr']}"


def test_the_choices_of_model_and_instance_find_the_server(observed):
    for variable in dashboard()["templating"]["list"]:
        if variable["type"] != "query":
            continue
        expression, label = re.fullmatch(r"label_values\((.*), (\w+)\)", variable["definition"]).groups()
        assert variable["query"]["query"] == variable["definition"]
        assert [labels[label] for labels, _ in observed.prometheus.query(filled_in(expression))]


EVERY_RULE = rules("recording") + rules("alerts")


@pytest.mark.parametrize("rule", EVERY_RULE, ids=lambda rule: rule.get("record") or rule["alert"])
def test_each_rule_reads_what_the_server_exports(observed, rule):
    assert not observed.unknown(rule["expr"])
    # Six hours ago there was nothing.
    observed.assert_selects(re.sub(r"offset 6h", "", rule["expr"]))
    if "record" in rule:
        assert observed.prometheus.query(rule["record"])


def test_prometheus_evaluates_every_rule_and_no_alert_is_pending(observed):
    groups = observed.prometheus.get("rules")["groups"]
    found = [rule for group in groups for rule in group["rules"]]
    assert len(found) == len(EVERY_RULE)
    assert {rule["health"] for rule in found} == {"ok"}
    assert [rule["name"] for rule in found if rule.get("state", "inactive") != "inactive"] == []


def test_each_family_of_the_server_is_on_the_board_or_has_a_reason_not_to(observed):
    on_the_board = {name for _, expression in queries() for name in names(expression)}
    assert {name for name in on_the_board if name.startswith("renga_gpu_")} == GPU_FAMILIES
    shown = {family(name, observed.families) for name in on_the_board}
    for rule in rules("recording"):
        shown |= {family(name, observed.families) for name in names(rule["expr"])}
    families = {n for n in observed.families if n.startswith(("renga_", "process_"))}
    assert families - shown == set(NOT_SHOWN)


def test_no_label_names_a_request_a_session_or_a_user(observed):
    labels = set(observed.prometheus.get("labels"))
    own = {"backend", "cause", "isa", "gpu", "kind", "le", "metric", "model", "outcome", "phase", "priority"}
    own |= {"purpose", "q", "reason", "source", "stage", "tier", "version", "route", "code"}
    assert labels <= own | {"__name__", "instance", "job", "alertname", "alertstate", "severity", "burn"}
