#!/usr/bin/env python3
"""Checks plain-text habits: no trailing space, one newline at the end, no large file.

    check_text.py FILE...        these files
    check_text.py                all files that git knows, below the folder of this clone
"""

import subprocess
import sys
from pathlib import Path

MAX_BYTES = 512 * 1024
# Where a stray space may be meant: data of tests, and texts of others.
EXEMPT = ("LICENSE", "tests/golden/", "tests/fuzz/", "proto/google/", "proto/grpc/")


def check_bytes(name, data):
    if len(data) > MAX_BYTES:
        return [f"{name}: {len(data)} bytes; make it while building or testing, or fetch it"]
    if b"\0" in data or name.startswith(EXEMPT):
        return []
    problems = [
        f"{name}:{number}: trailing space"
        for number, line in enumerate(data.split(b"\n"), 1)
        if line.rstrip() != line and not line.endswith(b"\f")
    ]
    if data and (not data.endswith(b"\n") or data.endswith(b"\n\n")):
        problems.append(f"{name}: ends with one newline, neither none nor an empty line")
    return problems


def main():
    root = Path(__file__).resolve().parents[2]
    names = sys.argv[1:]
    if not names:
        listing = ["git", "-C", str(root), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        out = subprocess.run(listing, capture_output=True, check=True, text=True).stdout
        names = [name for name in out.split("\0") if name]
    problems = []
    for name in names:
        path = root / name
        if path.is_file() and not path.is_symlink():
            problems.extend(check_bytes(name, path.read_bytes()))
    print(*problems, sep="\n", end="\n" if problems else "")
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
