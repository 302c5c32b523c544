"""The alerting and recording rules: valid, tested one by one, and of use to who is woken."""

import re
import subprocess

import pytest
from conftest import PROMETHEUS, ROOT, config_defaults, dashboard, load_yaml, rules, tool

CASES = sorted((ROOT / "tests" / "ops" / "rules").glob("*.yml"))


def run_promtool(*arguments):
    done = subprocess.run([tool("promtool"), *arguments], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr


def test_promtool_accepts_the_configuration_and_all_rules():
    run_promtool("check", "config", str(PROMETHEUS / "prometheus.yml"))
    loaded = load_yaml(PROMETHEUS / "prometheus.yml")["rule_files"]
    here = [str(p.relative_to(PROMETHEUS)) for p in (PROMETHEUS / "rules").iterdir()]
    assert sorted(loaded) == sorted(here)


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_alerts_fire_when_they_should_and_else_are_silent(path):
    run_promtool("test", "rules", str(path))


def firing_in_cases():
    """{alert: its labels}, of all alerts that a case expects to fire."""
    found = {}
    for path in CASES:
        for labels in re.findall(r"ALERTS\{(alertname=.*)\}", path.read_text()):
            labels = dict(re.findall(r'(\w+)="([^"]*)"', labels))
            found[(labels.pop("alertname"), labels.get("burn"))] = labels
    return found


def test_each_alert_has_a_case_in_which_it_fires_and_each_file_one_in_which_none_does():
    wanted = {(rule["alert"], rule["labels"].get("burn")) for rule in rules("alerts")}
    assert wanted == set(firing_in_cases())
    for path in CASES:
        if path.stem != "error_budget_slow":
            assert "exp_samples: []" in path.read_text(), path


@pytest.mark.parametrize("rule", rules("alerts"), ids=lambda rule: rule["alert"])
def test_an_alert_says_what_it_means_and_what_to_do(rule):
    assert rule["labels"]["severity"] in ("page", "ticket")
    assert set(rule["annotations"]) == {"summary", "description", "runbook"}
    text = " ".join(rule["annotations"].values())
    # Of its own labels, which a case has shown.
    labels = firing_in_cases()[(rule["alert"], rule["labels"].get("burn"))]
    assert set(re.findall(r"\$labels\.(\w+)", text)) <= set(labels) - {"severity", "burn"}
    # What it tells to look at or to set is there.
    sections = "|".join({key.split(".")[0] for key in config_defaults()})
    keys = set(re.findall(rf"\b(?:{sections})\.\w+", text))
    assert keys <= set(config_defaults())
    assert set(re.findall(r"\bRenga\w+", text)) <= {other["alert"] for other in rules("alerts")}
    titles = " ".join(panel["title"] for panel in dashboard()["panels"] if panel["type"] == "row")
    for row in re.findall(r"\brows? '?([A-Z]\w+)", text):
        assert row in titles, row


def test_the_bounds_of_the_queue_are_those_of_the_server():
    expression = next(r["expr"] for r in rules("alerts") if r["alert"] == "RengaQueueFilling")
    bounds = [int(n) for n in re.findall(r"/ (\d+)", expression)]
    defaults = config_defaults()
    assert bounds == [defaults["scheduler.max_queue_requests"], defaults["scheduler.max_queue_tokens"]]


def test_a_stall_is_longer_than_a_reader_may_stall():
    expression = next(r["expr"] for r in rules("alerts") if r["alert"] == "RengaStalled")
    seconds = int(re.search(r"timestamp_seconds > (\d+)", expression).group(1))
    assert seconds > config_defaults()["grpc.write_timeout_ms"] / 1000


def test_recording_rules_are_named_by_level_metric_and_operation():
    for rule in rules("recording"):
        assert re.fullmatch(r"(instance_)?model:renga_\w+:\w+", rule["record"]), rule["record"]
        level = rule["record"].split(":")[0]
        if level == "model":
            assert set(re.findall(r"by \(([^)]*)\)", rule["expr"])) <= {"model", "model, le"}
