"""Prints what the users measured beside what the server did, and what lies between.

    side_by_side.py RECORD METRICS_BEFORE METRICS_AFTER

RECORD is what locustfile.py --record wrote, the other two are the server's /metrics before and
after the run.
"""

import json
import pathlib
import re
import sys

# (name, in an answer of the record, histogram, live gauge)
TIMES = (
    ("response", "response_ms", 'renga_request_duration_seconds{outcome="ok"}', "request_duration"),
    ("first token", "first_token_ms", "renga_time_to_first_token_seconds{}", "time_to_first_token"),
    ("worst gap", "worst_gap_ms", "renga_request_max_gap_seconds{}", None),
)


def quantile(values, q):
    """None without any values; a value None does not count."""
    values = sorted(v for v in values if v is not None)
    return values[min(len(values) - 1, int(q * len(values)))] if values else None


# ---- The server's metrics ----------------------------------------------------------------------


def parse(text):
    """[(name, {label: value}, number)] of the Prometheus text format."""
    samples = []
    for line in text.splitlines():
        if line and not line.startswith("#"):
            series, number = line.rsplit(" ", 1)
            name, _, labels = series.partition("{")
            samples.append((name, dict(re.findall(r'(\w+)="([^"]*)"', labels)), float(number)))
    return samples


def buckets(samples, histogram):
    """Cumulative counts by upper bound, over all series of `name{label="value"}`."""
    name, _, labels = histogram.partition("{")
    wanted = dict(re.findall(r'(\w+)="([^"]*)"', labels))
    counts = {}
    for sample, have, number in samples:
        if sample == name + "_bucket" and wanted.items() <= have.items():
            bound = float(have["le"])
            counts[bound] = counts.get(bound, 0.0) + number
    return counts


def histogram_quantile(before, after, histogram, q):
    """(milliseconds, how many) of what was observed in between; linear inside a bucket."""
    old = buckets(before, histogram)
    grown = [(b, n - old.get(b, 0.0)) for b, n in sorted(buckets(after, histogram).items())]
    if not grown or grown[-1][1] <= 0:
        return None, 0
    rank = q * grown[-1][1]
    lower, below = 0.0, 0.0
    for bound, count in grown:
        if count >= rank:
            if bound == float("inf"):
                return 1000 * lower, int(grown[-1][1])
            part = (rank - below) / (count - below) if count > below else 1.0
            return 1000 * (lower + part * (bound - lower)), int(grown[-1][1])
        lower, below = bound, count
    raise AssertionError("a histogram without +Inf")


def live(samples, metric, q):
    """Milliseconds of the server's quantile over its last minute."""
    for name, labels, number in samples:
        if name == "renga_latency_seconds_live" and labels["metric"] == metric:
            if labels["q"] == str(q):
                return 1000 * number
    return None


# ---- The report ----------------------------------------------------------------------------------


def shown(milliseconds):
    return "-" if milliseconds is None else f"{milliseconds:.1f}"


def table(answers, before, after):
    rows = [("ms", "client P50", "client P99", "server P99", "server P99, by buckets", "client - server")]
    for name, key, histogram, gauge in TIMES:
        values = [a[key] for a in answers]
        client = quantile(values, 0.99)
        exact = live(after, gauge, 0.99) if gauge else None
        rough, _ = histogram_quantile(before, after, histogram, 0.99)
        gap = client - exact if client is not None and exact else None
        rows.append((name, shown(quantile(values, 0.5)), shown(client), shown(exact), shown(rough), shown(gap)))
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    for row in rows:
        cells = [c.ljust(w) if i == 0 else c.rjust(w) for i, (c, w) in enumerate(zip(row, widths))]
        print("  ".join(cells).rstrip())


def groups(answers):
    """P99 of the response by protocol and language, where there are several."""
    keys = sorted({(a["protocol"], a["language"]) for a in answers})
    if len(keys) < 2:
        return
    print()
    for protocol, language in keys:
        mine = [a for a in answers if (a["protocol"], a["language"]) == (protocol, language)]
        response = quantile([a["response_ms"] for a in mine], 0.99)
        first = quantile([a["first_token_ms"] for a in mine], 0.99)
        print(
            f"{protocol}, {language}: {len(mine)} answers, "
            f"P99 response {shown(response)} ms, first token {shown(first)} ms"
        )


def explain(record, before, after):
    answers = record["answers"]
    outside = [a["response_ms"] - a["server_ms"] for a in answers if a["server_ms"] is not None]
    lags = record["lags_ms"]
    print(
        f"""
Where the difference comes from. `server` begins when the request is in the server and ends with
its last token; `client` has the way there and back, and the client's own waiting on top:
  outside the engine, per answer    P50 {shown(quantile(outside, 0.5))} ms, P99 {shown(quantile(outside, 0.99))} ms
    (response of the client - queue, prefill and decode that the server says for this answer)
  of it: the client was late by     P50 {shown(quantile(lags, 0.5))} ms, P99 {shown(quantile(lags, 0.99))} ms
    (an answer that is there is read so much later: queueing in the client)
  the client's process used         {100 * record["cpu_share"]:.0f} % of one core
The rest is the gateway or gRPC, the network, and reading the request."""
    )
    if record["cpu_share"] > 0.8:
        print("The client was busy nearly all the time: its own times are not the server's.")
    _, seen = histogram_quantile(before, after, TIMES[0][2], 0.99)
    if seen != len(answers):
        print(f"The server counts {seen} whole answers, the client {len(answers)}.")
    if record["seconds"] > 60:
        print("`server P99` is of the last minute, `by buckets` of the whole run.")


def main():
    record = json.loads(pathlib.Path(sys.argv[1]).read_text())
    before, after = (parse(pathlib.Path(path).read_text()) for path in sys.argv[2:4])
    answers, seconds = record["answers"], record["seconds"]
    print(
        f"{len(answers)} answers in {seconds:.1f} s ({len(answers) / seconds:.1f} a second), "
        f"{record['failures']} failed\n"
    )
    table(answers, before, after)
    groups(answers)
    explain(record, before, after)
    return 1 if record["failures"] or not answers else 0


if __name__ == "__main__":
    sys.exit(main())
