#!/usr/bin/env python3
"""Checks that every source file has a test.

    check_tests.py [ROOT]

Every src/**/x.cc and kernels/**/x.cc has a tests/**/x_test.cc, or a line in
tests/lint/test_exceptions.txt: its path, a colon, the reason. A line that is no longer
needed is an error too.
"""

import sys
from pathlib import Path


def read_exceptions(path):
    """Path -> reason; and the problems of the file itself."""
    reasons, problems = {}, []
    text = path.read_text() if path.exists() else ""
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        name, colon, reason = line.partition(":")
        if not colon or not reason.strip():
            problems.append(f"{path.name}:{number}: write 'path: reason'")
        reasons[name.strip()] = reason.strip()
    return reasons, problems


def check(root):
    reasons, problems = read_exceptions(root / "tests/lint/test_exceptions.txt")
    tests = {path.name for path in (root / "tests").rglob("*_test.cc")}
    sources = sorted(
        path.relative_to(root)
        for top in ("src", "kernels")
        for path in (root / top).rglob("*")
        if path.suffix in {".cc", ".cu"}
    )
    if not sources:
        problems.append(f"{root}: no sources found")
    untested = {p.as_posix() for p in sources if f"{p.stem}_test.cc" not in tests}
    for name in sorted(untested - reasons.keys()):
        stem = Path(name).stem
        problems.append(
            f"{name}: no tests/*/{stem}_test.cc, and no reason in tests/lint/test_exceptions.txt"
        )
    for name in sorted(reasons.keys() - untested):
        problems.append(f"tests/lint/test_exceptions.txt: {name} needs no exception: drop the line")
    return problems


def main():
    root = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parents[2])
    problems = check(root.resolve())
    print(*problems, sep="\n", end="\n" if problems else "")
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
