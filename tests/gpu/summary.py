"""The short end of a GPU run: what is wrong, and how far the goals are.

    summary.py FOLDER           prints; status 1 if something is wrong

Reads what the steps left in the folder; what a step did not leave is said, never guessed.
"""

import csv
import json
import sys
from pathlib import Path

# Row of perf.csv, what of it, the roof's row, the share of the roof that is the goal.
GOALS = [
    ("decode attention, 8 x 8192, f16", "decode_attention/f16/hd:128/batch:8/context:8192", "gb_per_s", "roof/copy", 0.85),
    ("8B f16 decode, batch 1", "engine/8b-f16/graphs:1/decode_batch_1", "gb_per_s", "roof/copy", 0.85),
    ("prefill attention, 8192, f16", "prefill_attention/f16/hd:128/tokens:8192", "gflop_per_s", "roof/matmul_float16", 0.60),
]  # fmt: skip
# Ours, theirs: times of the same work.
PEERS = [
    ("decode_attention/f16/hd:128/batch:8/context:8192", "torch/decode_attention/f16/hd:128/batch:8/context:8192"),
    ("prefill_attention/f16/hd:128/tokens:8192", "torch/prefill_attention/f16/hd:128/tokens:8192"),
    ("product/f16/28672x4096/rows:1", "torch/matmul/f16/28672x4096/rows:1"),
    ("product/f16/28672x4096/rows:16", "torch/matmul/f16/28672x4096/rows:16"),
    ("product/f16/28672x4096/rows:2048", "torch/matmul/f16/28672x4096/rows:2048"),
    ("product/q4/28672x4096/rows:1", "torch/matmul/f16/28672x4096/rows:1"),
    ("engine/8b-f16/graphs:1/decode_batch_1", "transformers/8b-bf16/decode_batch_1"),
    ("engine/8b-f16/graphs:1/decode_batch_8", "transformers/8b-bf16/decode_batch_8"),
    ("engine/8b-f16/graphs:1/decode_batch_1", "engine/8b-f16/graphs:0/decode_batch_1"),
]


def read_perf(path):
    rows = {}
    if path.exists():
        for row in csv.DictReader(path.read_text().splitlines()):
            try:
                rows[row["name"]] = {key: float(value) for key, value in row.items() if key != "name"}
            except (TypeError, ValueError):
                continue  # A line that was cut short.
    return rows


def kernel_lines(path):
    """(lines, number of wrong checks) of kernels.csv."""
    if not path.exists():
        return ["kernels: no results"], 1
    families, wrong = {}, []
    for row in csv.reader(path.read_text().splitlines()):
        if len(row) < 5:
            continue
        ok = row[4] == "ok"
        families.setdefault(row[0], []).append(ok)
        if not ok:
            wrong.append(f"WRONG {row[0]}/{row[1]}: error {row[2]}, bound {row[3]} {' '.join(row[5:])[:200]}")
    counts = ", ".join(f"{name} {sum(oks)}/{len(oks)}" for name, oks in families.items())
    return [f"kernels: {counts or 'no results'}", *wrong[:20]], len(wrong) + (not families)


def parity_lines(path):
    if not path.exists():
        return ["parity: no results"], 1
    lines, wrong = [], 0
    for text in path.read_text().splitlines():
        case = json.loads(text)
        figures = ""
        if "ours" in case:
            ours, theirs = case["ours"], case["transformers_bf16"]
            figures = f"mean KL {ours['kl_mean']:.1e} (transformers in bf16 {theirs['kl_mean']:.1e}), "
            figures += f"same best token {ours['top1']:.3f}, largest difference {ours['max_abs']:.3f}"
        state = "WRONG " + "; ".join(case["wrong"]) if case["wrong"] else "ok"
        wrong += bool(case["wrong"])
        lines.append(f"parity {case['case']}: {state} {figures}".rstrip())
    return lines or ["parity: no results"], wrong + (not lines)


def speed_lines(rows):
    lines = []
    for title, name, what, roof, goal in GOALS:
        if name in rows and roof in rows and rows[roof][what] > 0:
            share = rows[name][what] / rows[roof][what]
            lines.append(f"{title}: {share:.0%} of {roof} (goal {goal:.0%}) {'met' if share >= goal else 'MISSED'}")
        else:
            lines.append(f"{title}: not measured (goal {goal:.0%})")
    for ours, theirs in PEERS:
        if ours in rows and theirs in rows:
            ratio = rows[theirs]["us"] / rows[ours]["us"]
            lines.append(f"{ours}: {rows[ours]['us']:.4g} us, {ratio:.2f} times as fast as {theirs}")
    return lines


def memory_lines(path):
    if not path.exists():
        return ["memory: no results"]
    lines = []
    for text in path.read_text().splitlines():
        report = json.loads(text)
        report = {key: f"{value / 1e6:.1f} MB" if value > 1e5 else value for key, value in report.items()}
        lines.append("memory: " + ", ".join(f"{key} {value}" for key, value in report.items()))
    return lines


def sanitizer_lines(path):
    """Which runs of sanitizer.log ("== TOOL PART", then "== status N") checked something."""
    states = {"0": "ok", "99": "ERRORS", "124": "out of time", "125": "no time left"}
    runs, name = {}, None
    for line in path.read_text().splitlines() if path.exists() else []:
        if line.startswith("== status ") and name is not None:
            status = line.split()[2]
            runs.setdefault(states.get(status, f"could not run ({status})"), []).append(name)
            name = None
        elif line.startswith("== "):
            name = line[3:]
    found = [f"{state}: {', '.join(names)}" for state, names in runs.items()]
    return [f"sanitizer: {'; '.join(found) or 'nothing was checked'}"]


def summary(folder, steps):
    """(text, status). `steps`: the lines 'name status seconds' of the run."""
    lines, worst = [], 0
    for step in steps:
        name, status, seconds = step.split()
        worst = max(worst, int(status))
        states = {"0": "ok", "124": "OUT OF TIME", "125": "NOT RUN: no time left"}
        lines.append(f"step {name}: {states.get(status, f'FAILED ({status})')} after {seconds} s")
    ran = {step.split()[0] for step in steps}
    wrong = 0
    for name, read, file in (("kernels", kernel_lines, "kernels.csv"), ("parity", parity_lines, "e2e.json")):
        if name in ran:
            found, bad = read(folder / file)
            lines += found
            wrong += bad
    if "speed" in ran:
        lines += speed_lines(read_perf(folder / "perf.csv"))
    if "memory" in ran:
        lines += memory_lines(folder / "memory.json")
    if "sanitizer" in ran:
        lines += sanitizer_lines(folder / "sanitizer.log")
    checked = "what was checked" if worst == 0 else "what was checked, but not all of it was"
    lines.append(f"{wrong} wrong" if wrong else f"nothing wrong in {checked}")
    return "\n".join(lines) + "\n", max(worst, 1 if wrong else 0)


def main():
    folder = Path(sys.argv[1])
    text, status = summary(folder, sys.stdin.read().splitlines())
    print(text, end="")
    sys.exit(status)


if __name__ == "__main__":
    main()
