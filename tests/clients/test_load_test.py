"""scripts/load_test.sh, small: the users, the report, and the two sides of the table."""

import json
import os
import re
import subprocess

import pytest
from conftest import ROOT, _binary

SCRIPT = ROOT / "scripts" / "load_test.sh"


def run(*arguments, **environment):
    return subprocess.run(
        [SCRIPT, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        timeout=300,
        env={**os.environ, "RENGA_BINARY": _binary(), **environment},
    )


def server_processes(model):
    """Of whatever still runs with that model."""
    listing = subprocess.run(["ps", "-eo", "pid,args"], capture_output=True, text=True, check=True)
    return [line for line in listing.stdout.splitlines() if str(model) in line]


@pytest.fixture(scope="module")
def small_run(tiny_model, tmp_path_factory):
    """5 users for 5 seconds, over HTTP and gRPC."""
    out = tmp_path_factory.mktemp("load")
    options = ("--users", 5, "--time", 5, "--protocol", "both", "--model", tiny_model)
    return run(*options, "--out", out), out


def test_all_requests_are_answered_and_nothing_keeps_running(small_run, tiny_model):
    done, out = small_run
    assert done.returncode == 0, done.stderr
    record = json.loads((out / "record.json").read_text())
    assert record["failures"] == 0
    assert {answer["protocol"] for answer in record["answers"]} == {"HTTP", "gRPC"}
    for answer in record["answers"]:
        assert 0 < answer["server_ms"] < answer["response_ms"]
        assert (answer["first_token_ms"] or 0) <= answer["response_ms"]
    assert server_processes(tiny_model) == []


def test_the_p99_of_both_sides_are_printed_and_the_difference_explained(small_run):
    text = small_run[0].stdout
    number = r"\d+\.\d"
    for name in ("response", "first token"):
        # Client P50 and P99, server P99 live and by buckets, the difference.
        assert re.search(rf"^{name}( +-?{number}){{5}}$", text, re.M), text
    assert re.search(rf"^worst gap( +{number}){{2}} ", text, re.M), text
    for cause in ("outside the engine", "the client was late by", "of one core"):
        assert cause in text


def test_the_report_has_all_three_times_of_both_protocols(small_run):
    report = (small_run[1] / "report.html").read_text()
    for name in ("response", "first token", "worst gap"):
        assert f'"name": "{name}"' in report
    for protocol in ("HTTP", "gRPC"):
        assert f'"method": "{protocol}"' in report


def test_both_languages_are_asked_in_50_to_100_characters():
    code = """
import random, sys
sys.path.insert(0, "bench/locust")
import messages
for language in messages.LANGUAGES:
    texts = [messages.message(random.Random(i), language) for i in range(200)]
    assert len(set(texts)) == 200
    assert all(50 <= len(text) <= 100 for text in texts)
    assert all((max(text) > "\\u4e00") == (language == "chinese") for text in texts)
"""
    subprocess.run(["python3", "-B", "-c", code], check=True, cwd=ROOT)


@pytest.mark.parametrize(
    "arguments, name",
    [
        (("--users", "0"), "--users"),
        (("--users", "1001"), "--users"),
        (("--users",), "--users"),
        (("--time", "4"), "--time"),
        (("--time", "1h"), "--time"),
        (("--protocol", "udp"), "--protocol"),
        (("--chinese", "2"), "--chinese"),
        (("--model", "/nowhere/model.gguf"), "--model"),
        (("--user", "5"), "--user"),
    ],
)
def test_a_wrong_option_is_refused_by_name(arguments, name):
    done = run(*arguments)
    assert done.returncode == 1
    assert done.stdout == ""
    assert name in done.stderr


def test_a_server_that_does_not_start_is_shown(tmp_path, tiny_model):
    done = run(
        *("--users", 1, "--time", 5, "--model", tiny_model, "--out", tmp_path),
        *("--", "--device.isa", "none"),
    )
    assert done.returncode == 1
    assert "device.isa" in done.stderr
