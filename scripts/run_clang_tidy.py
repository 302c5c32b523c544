"""Runs clang-tidy over our sources, in parallel and for a bounded time.

    run_clang_tidy.py --build BUILD_FOLDER [--seconds N] [--jobs N] [FILE...]

Files changed since the merge base with --base come first, then the rest, until the time is
up; what was not reached is named. A file that was found clean is not checked again as long
as its preprocessed text, its flags and .clang-tidy stay the same: the cache folder knows.
"""

import argparse
import concurrent.futures
import hashlib
import json
import os
import shlex
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("src", "kernels", "bench")


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", required=True, type=Path, help="has compile_commands.json")
    parser.add_argument("--base", default="origin/main", help="the branch that changes go to")
    parser.add_argument("--seconds", type=float, default=240)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("files", nargs="*", help="only these")
    return parser.parse_args()


def changed_files(base):
    """What differs from the merge base with `base`, work tree included; nothing if unknown."""
    git = ["git", "-C", str(ROOT)]
    merge_base = subprocess.run([*git, "merge-base", "HEAD", base], capture_output=True, text=True)
    if merge_base.returncode != 0:
        return set()
    diff = [*git, "diff", "--name-only", merge_base.stdout.strip()]
    return set(subprocess.run(diff, capture_output=True, text=True).stdout.split())


def cache_folder():
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "renga" / "tidy"


class Checker:
    def __init__(self, build):
        self.build = build
        commands = json.loads((build / "compile_commands.json").read_text())
        self.commands = {Path(entry["file"]).resolve(): entry for entry in commands}
        version = subprocess.run(["clang-tidy", "--version"], capture_output=True, check=True)
        self.salt = version.stdout + (ROOT / ".clang-tidy").read_bytes()
        self.cache = cache_folder()
        self.cache.mkdir(parents=True, exist_ok=True)

    def key(self, file):
        entry = self.commands[file]
        words = shlex.split(entry["command"])
        if "ccache" in Path(words[0]).name:
            words = words[1:]
        output = words.index("-o")
        words = words[:output] + words[output + 2 :]
        text = subprocess.run([*words, "-E", "-P"], cwd=entry["directory"], capture_output=True)
        if text.returncode != 0:
            return None  # clang-tidy will say what is wrong.
        flags = " ".join(words).replace(str(ROOT), "")
        return hashlib.sha256(self.salt + flags.encode() + text.stdout).hexdigest()

    def check(self, file):
        """None if clean, else clang-tidy's output."""
        key = self.key(file)
        if key and (self.cache / key).exists():
            return None
        run = subprocess.run(
            ["clang-tidy", "--quiet", "--warnings-as-errors=*", "-p", str(self.build), str(file)],
            capture_output=True, text=True,
        )  # fmt: skip
        if run.returncode != 0:
            return run.stdout + (run.stderr if not run.stdout else "")
        if key:
            (self.cache / key).touch()
        return None


def run(checker, files, seconds, jobs):
    """Checks `files` in order; pairs of file and output that are not clean, and what is left."""
    deadline = time.monotonic() + seconds

    def one(file):
        return "left" if time.monotonic() > deadline else checker.check(file)

    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        results = list(zip(files, pool.map(one, files)))
    left = [file for file, result in results if result == "left"]
    return [(file, out) for file, out in results if out not in (None, "left")], left


def main():
    args = parse_args()
    checker = Checker(args.build.resolve())
    wanted = {Path(name).resolve() for name in args.files}
    changed = changed_files(args.base)

    def is_ours(file):
        return file.is_relative_to(ROOT) and file.relative_to(ROOT).parts[0] in FOLDERS

    files = [f for f in checker.commands if (f in wanted if wanted else is_ours(f))]
    files.sort(key=lambda f: (str(f.relative_to(ROOT)) not in changed, f))
    if not files:
        sys.exit("clang-tidy: no file to check")
    dirty, left = run(checker, files, args.seconds, args.jobs)
    for _, output in dirty:
        print(output)
    for file in left:
        print(f"clang-tidy: no time for {file.relative_to(ROOT)}")
    print(f"clang-tidy: {len(files) - len(left)} of {len(files)} files, {len(dirty)} with findings")
    sys.exit(1 if dirty else 0)


if __name__ == "__main__":
    main()
