#!/usr/bin/env python3
"""What the compiled CUDA kernels use of a GPU: no spills, no more registers than agreed, and the
table of kernels/README.md.

    check_resources.py BUILD_DIR            checks; status 1 if something is wrong
    check_resources.py BUILD_DIR --write    writes registers.json and the table as they are now

BUILD_DIR is a build with RENGA_CUDA: the reports that ptxas left beside the objects, and
bin/renga_gpu_check, which knows launch shapes and bytes and needs no GPU for that.

registers.json holds what each kernel uses on each architecture and a limit for all of them. A
limit is raised by hand: it says that somebody looked at what that costs. `--write` gives a new
kernel the next multiple of 8.
"""

import argparse
import json
import re
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
TABLE = HERE / "registers.json"
README = HERE.parents[1] / "kernels" / "README.md"
BEGIN, END = "<!-- cuda kernels: begin -->", "<!-- cuda kernels: end -->"
ARCHITECTURES = ("80", "86", "89", "90")

# Of one SM (CUDA C++ Programming Guide, compute capabilities): warps, blocks, shared bytes. All
# have 65536 registers in 4 parts, given to a warp in units of 256, and keep 1 KiB of shared
# memory per block for themselves.
SM = {
    "80": (64, 32, 164 * 1024),
    "86": (48, 16, 100 * 1024),
    "89": (48, 24, 100 * 1024),
    "90": (64, 32, 228 * 1024),
}
# Bytes a second; operations a second in tensor cores (f16 in, f32 sums) and in f32.
GPUS = {"A10G": (600e9, 62.5e12, 31.2e12), "H200": (4.3e12, 989e12, 67e12)}


# ---- ptxas -----------------------------------------------------------------------------------

ENTRY = re.compile(r"Compiling entry function '(\S+)' for 'sm_(\d+)\w?'")
FRAME = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
USED = re.compile(r"Used (\d+) registers")
LOCAL = re.compile(r"(\d+) bytes lmem")


def entry_name(mangled):
    """kRmsNorm of ..._rows_cu_1234567814Entry_kRmsNormENS0_...: the name's length may stand behind
    other digits. It is the shortest one behind which the arguments begin, of a type of ours."""
    found = re.search(r"(\d+)(Entry_\w+)", mangled)
    if not found:
        return None
    digits, rest = found.groups()
    for start in reversed(range(len(digits))):
        length = int(digits[start:])
        if digits[start] != "0" and rest[length:].startswith("ENS"):
            return rest[len("Entry_") : length]
    return None


def parse(text):
    """{(kernel, architecture): {"registers", "stack", "spills", "local"}} of ptxas -v."""
    kernels, current = {}, None
    for line in text.splitlines():
        if entry := ENTRY.search(line):
            name = entry_name(entry[1])
            current = None
            if name:
                current = kernels.setdefault((name, entry[2]), {"stack": 0, "spills": 0, "local": 0})
        if current is None:
            continue
        if frame := FRAME.search(line):
            current["stack"] = int(frame[1])
            current["spills"] = int(frame[2]) + int(frame[3])
        if used := USED.search(line):
            current["registers"] = int(used[1])
            local = LOCAL.search(line)
            current["local"] = int(local[1]) if local else 0
    return kernels


def find_problems(kernels, table, cases):
    problems = []
    for (name, arch), use in sorted(kernels.items()):
        for what in ("stack", "spills", "local"):
            if use[what]:
                problems.append(f"{name} on sm_{arch}: {use[what]} bytes of {what} memory, must be 0")
        if name not in table:
            problems.append(f"{name} is not in registers.json: run with --write")
        elif use["registers"] > table[name]["limit"]:
            problems.append(f"{name} on sm_{arch}: {use['registers']} registers, limit {table[name]['limit']}")
    names = {name for name, _ in kernels}
    if not names:
        problems.append("no report of ptxas: is the build one with RENGA_CUDA?")
    for name in sorted(names):
        missing = [arch for arch in ARCHITECTURES if (name, arch) not in kernels]
        if missing:
            problems.append(f"{name} was not compiled for {', '.join(missing)}")
        if name not in cases:
            problems.append(f"{name} has no case in tests/gpu/stated_cases.cc")
    problems += [f"registers.json: there is no kernel {name}" for name in sorted(table.keys() - names)]
    return problems


def natural(name):
    """kProduct8 before kProduct16."""
    return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", name)]


def new_table(kernels, old):
    table = {}
    for name in sorted({name for name, _ in kernels}, key=natural):
        registers = {arch: kernels[name, arch]["registers"] for arch in ARCHITECTURES if (name, arch) in kernels}
        limit = min(255, -(-max(registers.values()) // 8) * 8)
        table[name] = {"registers": registers, "limit": old.get(name, {}).get("limit", limit)}
    return table


def table_text(table):
    rows = [f'  "{name}": {json.dumps(entry)}' for name, entry in table.items()]
    return "{\n" + ",\n".join(rows) + "\n}\n"


# ---- Occupancy and bounds --------------------------------------------------------------------


def blocks_per_sm(arch, registers, threads, shared):
    warps, blocks, memory = SM[arch]
    per_block = threads // 32
    of_a_warp = -(-registers * 32 // 256) * 256
    return min(
        blocks,
        warps // per_block,
        65536 // 4 // of_a_warp * 4 // per_block,
        memory // (-(-shared // 128) * 128 + 1024),
    )


def bound(gpu, case):
    """(seconds, what they go to) that a launch of the case takes at least."""
    bandwidth, tensor, plain = GPUS[gpu]
    moving = case["bytes"] / bandwidth
    counting = case["flops"] / (tensor if case["tensor_cores"] else plain)
    return (moving, "bytes") if moving >= counting else (counting, "math")


def short(values):
    """One number if all are the same."""
    return str(values[0]) if len(set(values)) == 1 else " / ".join(map(str, values))


def microseconds(seconds):
    return f"{seconds * 1e6:.3g}" if seconds < 1e-3 else f"{seconds * 1e6:.0f}"


def readme_rows(table, cases):
    lines = [
        "| kernel | threads | registers | shared, bytes | blocks per SM | case | MB | GFLOP | A10G, us | H200, us |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for name, entry in table.items():
        case = cases[name]
        registers = [entry["registers"][arch] for arch in ARCHITECTURES]
        blocks = [
            blocks_per_sm(arch, used, case["threads"], case["shared_bytes"])
            for arch, used in zip(ARCHITECTURES, registers)
        ]
        bounds = [bound(gpu, case) for gpu in GPUS]
        cells = [
            f"`{name}`", case["threads"], short(registers), case["shared_bytes"], short(blocks), f"`{case['case']}`",
            f"{case['bytes'] / 1e6:.4g}", f"{case['flops'] / 1e9:.3g}" if case["flops"] else "",
            *(f"{microseconds(seconds)} ({what})" for seconds, what in bounds),
        ]  # fmt: skip
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    return "\n".join(lines)


def with_table(text, rows):
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    if not rest or not after:
        raise ValueError(f"no {BEGIN} ... {END} in the README")
    return f"{before}{BEGIN}\n{rows}\n{END}{after}"


def read_shapes(lines):
    """{kernel: its first stated case} of `renga_gpu_check shapes`."""
    objects = [json.loads(line) for line in lines if line.strip()]
    names = {o["id"]: o["name"] for o in objects if "id" in o}
    cases = {}
    for o in objects:
        if "case" in o:
            cases.setdefault(names.get(o["kernel"], f"kernel {o['kernel']}"), o)
    return cases


# ---- Running it ------------------------------------------------------------------------------


def main():
    options = argparse.ArgumentParser(description="Spills, registers and occupancy of the CUDA kernels.")
    options.add_argument("build", type=Path)
    options.add_argument("--write", action="store_true")
    given = options.parse_args()
    kernels = {}
    for report in sorted(given.build.glob("kernels/CMakeFiles/renga_cuda_kernels.dir/cuda/*.ptxas")):
        kernels |= parse(report.read_text())
    done = subprocess.run([given.build / "bin/renga_gpu_check", "shapes"], capture_output=True, check=True, text=True)
    cases = read_shapes(done.stdout.splitlines())
    table = json.loads(TABLE.read_text()) if TABLE.exists() else {}
    now = new_table(kernels, table)
    if given.write:
        TABLE.write_text(table_text(now))
        table = now
    problems = find_problems(kernels, table, cases)
    if not problems:
        wanted = with_table(README.read_text(), readme_rows(now, cases))
        if given.write:
            README.write_text(wanted)
        elif wanted != README.read_text() or table != now:
            problems.append("registers.json or the table of kernels/README.md is old: run with --write")
    print(*problems, sep="\n", end="\n" if problems else "")
    print(f"{len({name for name, _ in kernels})} kernels on {len({arch for _, arch in kernels})} architectures")
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
