"""The parts of the comparison with the peers that decide something: parsing, sums, tables."""

import math
import os
import subprocess
import sys
import time
from pathlib import Path

import bench_path  # noqa: F401  # isort: skip

import chat
import compare
import machine
import processes
import pytest
import report

CPUINFO = """\
processor\t: 0
cpu family\t: 25
model\t\t: 17
model name\t: AMD EPYC
flags\t\t: fpu avx2 avx512f avx512_vnni hypervisor

processor\t: 1
flags\t\t: amx_int8
"""


def test_the_cpu_is_described_by_its_first_processor():
    model, flags = machine.parse_cpuinfo(CPUINFO)
    assert model == "AMD EPYC (family 25, model 17)"
    assert "avx512_vnni" in flags and "amx_int8" not in flags


def test_this_machine_has_a_description():
    line = machine.describe(Path(__file__).parents[2])
    assert "\n" not in line and " cores, " in line and "commit " in line


def test_a_command_may_hold_spaces_and_parentheses():
    stat = "42 (a (b) c) S 1 42 42 0 -1 4194560 1 0 0 0 70 30 0 0 20 0 1 0 5 0 0"
    assert machine.parse_process(stat) == ("a (b) c", 100)


def test_idle_and_waiting_time_is_not_busy_time():
    assert machine.parse_system("cpu  1 2 4 1000 2000 8 16 32 500 0\ncpu0 9 9 9") == (31, 32)


def test_the_busiest_process_comes_first_and_we_do_not_count():
    before = {1: ("idle", 50), 2: ("busy", 100), 3: ("us", 0)}
    after = {1: ("idle", 50), 2: ("busy", 200), 3: ("us", 900), 4: ("new", 150)}
    seconds = 100 / machine.TICKS
    assert machine.busy_processes(before, after, seconds, {3}) == [(1.5, "new", 4), (1.0, "busy", 2)]


def test_a_busy_process_is_named():
    with processes.busy_neighbour() as pid:
        # On a loaded machine others may be busier: it is among all of them.
        begin, before = time.monotonic(), machine.process_times()
        end = time.monotonic() + 60
        while True:
            found = machine.busy_processes(before, machine.process_times(), time.monotonic() - begin, {os.getpid()})
            if pid in [entry[2] for entry in found]:
                break
            assert time.monotonic() < end
        assert os.getsid(pid) == pid  # In a session of its own.
    assert not Path("/proc", str(pid)).exists()


def test_own_children_are_not_the_others():
    meter = machine.CpuMeter()
    subprocess.run([sys.executable, "-c", "pass"], check=True)
    others, stolen = meter.others()
    assert 0 <= others <= os.cpu_count() + 0.5 and stolen >= 0


def test_medians_and_spreads():
    assert report.speed_cell([90.0, 100.0, 110.0]) == "100.0 ± 10%"
    assert report.speed_cell([]) == "-"
    assert report.ratio_cell([2.0, 1.0, 4.0]) == "2.00 (1.00–4.00)"
    assert report.ratio_cell([2.0]) == "2.00"
    assert math.isnan(report.median([]))


def test_a_goal_is_met_missed_or_not_measured():
    assert report.verdict(2.0, 2.0) == "met" and report.verdict(1.9, 2.0) == "missed"
    assert report.verdict(1.0, 1.0, at_most=True) == "met"
    assert report.verdict(1.1, 1.0, at_most=True) == "missed"
    assert report.verdict(math.nan, 1.0) == "not measured"


def test_only_the_marked_place_is_replaced():
    text = "a\n<!-- x: begin -->\nold\n<!-- x: end -->\nb\n"
    new = report.replace_marked(text, "x", "\nnew\n\n")
    assert new == "a\n<!-- x: begin -->\nnew\n<!-- x: end -->\nb\n"
    assert report.replace_marked(new, "x", "new") == new


@pytest.mark.parametrize(
    "text",
    ["", "<!-- x: begin -->", "<!-- x: end -->\n<!-- x: begin -->", "<!-- x: begin --><!-- x: begin --><!-- x: end -->"],
)
def test_a_file_without_the_marks_is_left_alone(text):
    with pytest.raises(ValueError, match="x: begin"):
        report.replace_marked(text, "x", "new")


def test_the_readme_has_the_marks():
    text = compare.README.read_text()
    for name in ("peers, steps", "peers, chat"):
        report.replace_marked(text, name, "new")


def test_metrics_are_summed_over_their_labels():
    text = '# HELP a x\na{t="1"} 2\na{t="2"} 3.5\nab 7\na_b 9\n'
    assert processes.metric(text, "a") == 5.5
    assert processes.metric(text, "ab") == 7
    with pytest.raises(ValueError):
        processes.metric(text, "c")


def test_the_last_line_of_json_counts():
    assert processes.last_json('{"a": 1}\ntext\n{"a": 2}\nmore\n') == {"a": 2}
    with pytest.raises(ValueError):
        processes.last_json("text\n")


def test_settings_of_the_servers_do_not_leak_into_them(monkeypatch):
    monkeypatch.setenv("RENGA_MODEL_NAME", "x")
    monkeypatch.setenv("LLAMA_ARG_THREADS", "9")
    assert not [k for k in processes.clean_environment() if k.startswith(("RENGA_", "LLAMA_"))]


def test_a_program_that_fails_ends_the_comparison_with_its_message():
    with pytest.raises(SystemExit, match="no such luck"):
        processes.output_of([sys.executable, "-c", "import sys; sys.exit('no such luck')"])
    with pytest.raises(SystemExit, match="longer than"):
        processes.output_of([sys.executable, "-c", "import time; time.sleep(60)"], seconds=0.2)
    assert processes.output_of([sys.executable, "-c", "print(5); exit(1)"], accept=(0, 1)) == "5\n"


def test_a_server_that_ends_at_once_is_reported(tmp_path):
    with pytest.raises(SystemExit, match="before it was ready:\nbroken"):
        command = [sys.executable, "-c", "print('broken')"]
        port = processes.free_port()
        processes.Server("x", command, port, port, "/", tmp_path / "log")


# ---- The tables ----------------------------------------------------------------------------


def step_bench(speed):
    steps = {name: {"tokens_per_s": speed} for name in compare.STEP_NAMES}
    return {"read_gb_per_s": 20.0, "bytes_per_token": 1e8, **steps}


def make_round(ours, theirs):
    """A round in which renga does `ours`, and each peer what `theirs` says, at every step."""
    pairs = {}
    for peer in compare.PEERS:
        speeds = {name: theirs[peer] for name in compare.STEP_NAMES}
        result = {"speeds": speeds, "version": "1-2", "ready_s": 4.0, "resident_bytes": 4e8}
        pairs[peer] = {"renga": step_bench(ours), "peer": result}
    alone = {name: ours for name in compare.STEP_NAMES}
    busy = {name: ours / 2 for name in compare.STEP_NAMES}
    return {
        "pairs": pairs,
        "neighbour": {"idle": {"renga": alone, "llama": 100.0}, "busy": {"renga": busy, "llama": 10.0}},
        "start": {
            "renga": {"ready_s": 0.5, "resident_bytes": 2e8, "kv_bytes": 1e6},
            "llama": {"ready_s": 1.5, "resident_bytes": 3e8},
        },
        "others": 0.01,
        "stolen": 0.0,
    }


@pytest.fixture
def args(tmp_path):
    model = tmp_path / "model.gguf"
    model.write_bytes(b"x" * 1000)

    class Args:
        rounds, threads, quick, llama_version = 2, 2, False, "1"

    Args.model = model
    return Args


PEERS = {"OpenVINO": 100.0, "llama.cpp": 50.0, "llama.cpp Q4_0": 80.0}


def test_ratios_are_of_runs_next_to_each_other():
    rounds = [make_round(200.0, PEERS), make_round(100.0, {**PEERS, "OpenVINO": 25.0})]
    assert compare.step_ratios(rounds, "OpenVINO", "prefill 512") == [2.0, 4.0]
    assert compare.step_ratios(rounds, "OpenVINO", "no such step") == []


def test_a_goal_against_llama_cpp_is_against_its_faster_format():
    assert compare.best_llama_ratios([make_round(200.0, PEERS)], "prefill 512") == [2.5]


def test_the_bound_is_bandwidth_over_the_bytes_of_a_token():
    assert compare.bound_share(step_bench(150.0)) == 0.75


def test_memory_is_allowed_the_file_its_pages_and_a_constant(args):
    start = {"resident_bytes": 90e6, "kv_bytes": 1e6}
    assert compare.memory_margin(args, start) == pytest.approx(1300 + 1e6 + 100e6 - 90e6)


def test_the_whole_report_of_steps(args):
    rounds = [make_round(200.0, PEERS), make_round(220.0, PEERS)]
    text = compare.render(args, {"disturbance": "", "rounds": rounds})
    assert "| decode batch 64 | 210.0 ± 5% | 100.0 ± 0% | 50.0 ± 0% | 80.0 ± 0% | 2.10 (2.00–2.20) |" in text
    assert "| prefill 512, over llama.cpp's best format | ≥ 2.5 | 2.62 (2.50–2.75) | met |" in text
    assert "| decode batch 1, over OpenVINO | ≥ 2.5 | 2.10 (2.00–2.20) | missed |" in text
    assert "| decode batch 8 with a busy neighbour, over idle | ≥ 0.45 | 0.50 (0.50–0.50) | met |" in text
    assert "| llama.cpp: decode batch 1 with a busy neighbour, over idle |  | 0.10 (0.10–0.10) |  |" in text
    assert "| resident after one request, MB (1 of them KV pages) | ≤ 101 | 200 | missed |" in text
    assert "not on a quiet machine" not in text
    assert "**not on a quiet machine** (cc1plus)" in compare.render(
        args, {"disturbance": "cc1plus", "rounds": rounds}
    )


def test_a_step_that_was_left_out_is_not_measured(args):
    a_round = make_round(200.0, PEERS)
    for pair in a_round["pairs"].values():
        del pair["peer"]["speeds"]["decode batch 64"], pair["renga"]["decode batch 64"]
    text = compare.render(args, {"disturbance": "", "rounds": [a_round]})
    assert "| decode batch 64 | - | - | - | - | - | - | - |" in text
    assert "| decode batch 64, over OpenVINO | ≥ 1.5 | - | not measured |" in text


def load_result(rate, p99, refused=0):
    quantiles = {"p50": p99 / 2, "p95": p99, "p99": p99, "max": p99}
    return {
        "requests": 100, "requests_per_s": rate, "response_ms": quantiles, "first_token_ms": quantiles,
        "worst_gap_ms": quantiles, "refused": refused, "errors": {"timeout": 1} if refused else {},
        "refused_within_ms": {"p99": 2.5} if refused else None,
    }  # fmt: skip


def test_the_whole_report_of_chats(args):
    args.users, args.seconds, args.think, args.max_tokens = [16, 50, 100], 20, "0.5-1.5", 16
    runs = []
    for users in args.users:
        runs.append({"side": "renga", "users": users, "result": load_result(40.0, 300.0, refused=users // 100)})
        runs.append({"side": "llama-server", "users": users, "result": load_result(8.0, 9000.0)})
    text = chat.render(args, {"disturbance": "", "others": 0.0, "stolen": 0.0, "runs": runs})
    assert "| 50 | llama-server | 8.0 ± 0% | 4500 | 9000 | 9000 | 9000 | 0 of 100 | 0 |" in text
    assert "| 100 | renga | 40.0 ± 0% | 150 | 300 | 300 | 300 | 1 of 102 | 1 |" in text
    assert "| 50 users: requests/s over llama-server's | ≥ 5 | 5.00 | met |" in text
    assert "| 16 users: response, P99, ms | ≤ 290 | 300 | missed |" in text
    assert "within 2.5 ms at P99" in text


def test_a_server_that_answered_nobody_has_no_figures(args):
    args.users, args.seconds, args.think, args.max_tokens = [50], 20, "0.5-1.5", 16
    nothing = {**load_result(0.0, 1.0), "response_ms": None, "first_token_ms": None, "worst_gap_ms": None}
    runs = [
        {"side": "renga", "users": 50, "result": load_result(40.0, 300.0)},
        {"side": "llama-server", "users": 50, "result": nothing},
    ]
    text = chat.render(args, {"disturbance": "", "others": 0.0, "stolen": 0.0, "runs": runs})
    assert "| 50 | llama-server | 0.0 ± 0% | - | - | - | - | 0 of 100 | 0 |" in text
    assert "requests/s over llama-server's" not in text
