"""Runs step_bench and llama.cpp's benches in turns and prints one table.

    take_turns.py --ours STEP_BENCH --theirs FOLDER --model FILE [--threads N] [--rounds N]

The same four steps on both sides: prefill of 512 tokens, and decode of 1, 8 and 32
sequences with 128 tokens of context. A round runs each side once; the table has the median
over the rounds, in tokens per second, and half its spread.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

PREFILL, CONTEXT, GENERATED = 512, 128, 32
BATCHES = (8, 32)


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ours", required=True)
    parser.add_argument("--theirs", required=True, type=Path, help="folder with llama-bench")
    parser.add_argument("--model", required=True)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--rounds", type=int, default=3)
    return parser.parse_args()


def output_of(words):
    run = subprocess.run([str(word) for word in words], capture_output=True, text=True)
    if run.returncode != 0:
        sys.exit(f"{words[0]} failed:\n{run.stderr[-2000:]}")
    return run.stdout


def run_ours(args):
    """Step -> tokens per second, from the JSON line that step_bench ends with."""
    out = output_of([args.ours, "--model", args.model, "--threads", args.threads])
    results = json.loads(out.splitlines()[-1])
    return {name: step["tokens_per_s"] for name, step in results.items() if isinstance(step, dict)}


def llama_bench(args, *options):
    words = [args.theirs / "llama-bench", "-m", args.model, "-t", args.threads, "-r", 3, "-o", "json"]
    (result,) = json.loads(output_of([*words, *options]))
    return statistics.median(result["samples_ts"])


def run_theirs(args):
    results = {
        f"prefill {PREFILL}": llama_bench(args, "-p", PREFILL, "-n", 0),
        "decode batch 1": llama_bench(args, "-p", 0, "-n", GENERATED, "-d", CONTEXT),
    }
    out = output_of([
        args.theirs / "llama-batched-bench", "-m", args.model, "-t", args.threads,
        "-c", max(BATCHES) * (CONTEXT + GENERATED), "-npp", CONTEXT, "-ntg", GENERATED,
        "-npl", ",".join(map(str, BATCHES)), "--output-format", "jsonl",
    ])  # fmt: skip
    for line in filter(None, out.splitlines()):
        result = json.loads(line)
        results[f"decode batch {result['pl']}"] = result["speed_tg"]
    return results


def print_table(ours, theirs):
    def cell(rounds, step):
        values = [r[step] for r in rounds]
        median = statistics.median(values)
        return median, f"{median:.1f} ± {(max(values) - min(values)) / median / 2:.0%}"

    print("| step | renga, tokens/s | llama.cpp, tokens/s | renga / llama.cpp |")
    print("| --- | --- | --- | --- |")
    for step in theirs[0]:
        our_median, our_text = cell(ours, step)
        their_median, their_text = cell(theirs, step)
        print(f"| {step} | {our_text} | {their_text} | {our_median / their_median:.2f} |")


def main():
    args = parse_args()
    ours, theirs = [], []
    for number in range(1, args.rounds + 1):
        print(f"round {number} of {args.rounds}", file=sys.stderr)
        ours.append(run_ours(args))
        theirs.append(run_theirs(args))
        if missing := theirs[-1].keys() - ours[-1].keys():
            sys.exit(f"step_bench did not measure: {', '.join(sorted(missing))}")
    print(f"{args.threads} threads, {Path(args.model).name}, median of {args.rounds} rounds\n")
    print_table(ours, theirs)


if __name__ == "__main__":
    main()
