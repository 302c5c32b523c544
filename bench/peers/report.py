"""Messages, medians and their spread, Markdown tables, the marked place in a README."""

import math
import statistics
import sys
import time


def say(text):
    """One line with the time of day, for who watches."""
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


def median(values):
    return statistics.median(values) if values else math.nan


def half_spread(values):
    """Half of (largest - smallest), over the median."""
    middle = median(values)
    return (max(values) - min(values)) / middle / 2 if values and middle else 0.0


def speed_cell(values, digits=1):
    if not values:
        return "-"
    return f"{median(values):.{digits}f} ± {half_spread(values):.0%}"


def ratio_cell(values):
    """The median of ratios, with the smallest and the largest."""
    if not values:
        return "-"
    if len(values) == 1:
        return f"{values[0]:.2f}"
    return f"{median(values):.2f} ({min(values):.2f}–{max(values):.2f})"


def verdict(value, goal, at_most=False):
    """Whether a figure reaches its goal, as a word of the table."""
    if math.isnan(value):
        return "not measured"
    return "met" if (value <= goal if at_most else value >= goal) else "missed"


def table(header, rows):
    lines = ["| " + " | ".join(header) + " |", "|" + " --- |" * len(header)]
    lines += ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join(lines)


def replace_marked(text, name, body):
    """The text with what stands between the two markers of that name replaced."""
    begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    if text.count(begin) != 1 or text.count(end) != 1 or text.index(begin) > text.index(end):
        raise ValueError(f"the file needs one line `{begin}` and after it one `{end}`")
    head, tail = text[: text.index(begin)], text[text.index(end) :]
    return f"{head}{begin}\n{body.strip()}\n{tail}"


def write_marked(path, name, body):
    path.write_text(replace_marked(path.read_text(), name, body))
