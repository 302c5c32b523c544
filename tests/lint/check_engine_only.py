#!/usr/bin/env python3
"""Checks that an engine-only build stands on the standard library alone.

    check_engine_only.py BUILD_DIR [ROOT]

Reads what ninja knows of the headers that each object was compiled from (`ninja -t deps`) and
names every one that is neither ours nor the compiler's, glibc's, Linux's or CUDA's. So the
packages that other builds need may be installed, and still none of them can creep in.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

FOLDERS = re.compile(
    r"/usr/(lib/gcc/|lib/llvm-\d+/lib/clang/|local/cuda[^/]*/|include/c\+\+/|include/(linux|asm|asm-generic)/"
    r"|include/(x86_64|aarch64)-linux-gnu/(c\+\+|bits|sys|gnu|asm)/|include/(bits|sys|gnu)/)"
)
# glibc's own headers that lie in /usr/include itself, where many packages put theirs.
GLIBC = set(
    "alloca assert ctype dlfcn endian errno fcntl features features-time64 inttypes libintl limits locale malloc"
    " math memory poll pthread sched semaphore signal stdc-predef stdint stdio stdlib string strings syscall time"
    " unistd wchar wctype".split()
)
OBJECT = re.compile(r"^(\S.*): #deps \d+, deps mtime \d+ \((\w+)\)$")


def is_allowed(header, folders):
    if any(header.startswith(folder.rstrip("/") + "/") for folder in folders):
        return True
    if FOLDERS.match(header):
        return True
    path = Path(header)
    return str(path.parent) == "/usr/include" and path.suffix == ".h" and path.stem in GLIBC


def foreign(deps, build, folders):
    """(objects, {header: an object that was compiled from it}) of `ninja -t deps`'s text."""
    objects, found, name = 0, {}, None
    for line in deps.splitlines():
        match = OBJECT.match(line)
        if match:
            name = match[1] if match[2] == "VALID" else None
            objects += name is not None
        elif line.strip() and name:
            header = os.path.normpath(os.path.join(build, line.strip()))
            if not is_allowed(header, folders):
                found.setdefault(header, name)
    return objects, found


def cuda_folders(cache):
    """The CUDA toolkit's folders, wherever this build found it."""
    compilers = re.findall(r"^CMAKE_CUDA_COMPILER:\w+=(.+)$", cache, re.MULTILINE)
    return [str(Path(os.path.realpath(nvcc)).parents[1]) for nvcc in compilers if os.path.exists(nvcc)]


def main():
    build = Path(sys.argv[1]).resolve()
    root = Path(sys.argv[2] if len(sys.argv) > 2 else Path(__file__).parents[2]).resolve()
    deps = subprocess.run(["ninja", "-C", str(build), "-t", "deps"], capture_output=True, check=True, text=True)
    folders = [str(root), str(build), *cuda_folders((build / "CMakeCache.txt").read_text())]
    objects, found = foreign(deps.stdout, str(build), folders)
    for header, name in sorted(found.items()):
        print(f"{header}: a header of another package, in {name}")
    if objects == 0:
        print(f"{build}: ninja knows of no object: is it built?")
    else:
        print(f"{objects} objects, {len(found)} headers of other packages")
    sys.exit(1 if found or objects == 0 else 0)


if __name__ == "__main__":
    main()
