"""What this machine is, and what else runs on it.

A figure is only worth something with the machine that gave it, and only if nobody else
used that machine: `check_quiet` names who does, `CpuMeter` says afterwards how much CPU the
others had during a measurement.
"""

import os
import re
import resource
import subprocess
import sys
import time
from datetime import datetime, timezone
from pathlib import Path

from report import say

TICKS = os.sysconf("SC_CLK_TCK")
# Of one CPU. A process below the first is not worth a name; all together below the second
# move no figure by more than the figures move by themselves.
NAMED_SHARE, QUIET_SHARE = 0.02, 0.08
FLAGS = ("avx2", "avx_vnni", "avx512f", "avx512_vnni", "avx512_bf16", "amx_int8", "amx_bf16")


def parse_cpuinfo(text):
    """(model name with family and model, set of flags) of the first CPU."""
    fields = {}
    for line in text.split("\n\n")[0].splitlines():
        name, _, value = line.partition(":")
        fields[name.strip()] = value.strip()
    model = fields.get("model name", "unknown CPU")
    if "cpu family" in fields:
        model += f" (family {fields['cpu family']}, model {fields.get('model', '?')})"
    return model, set(fields.get("flags", "").split())


def commit_of(root):
    """The short commit, with a `+` if a file that git knows has changed since."""

    def git(*words):
        run = subprocess.run(["git", "-C", str(root), *words], capture_output=True, text=True)
        return run.stdout.strip()

    commit = git("rev-parse", "--short", "HEAD")
    if not commit:
        return "unknown"
    return commit + ("+" if git("status", "--porcelain", "--untracked-files=no") else "")


def describe(root):
    """One line: day, CPU, cores, what its instruction set has, memory, kernel, commit."""
    model, flags = parse_cpuinfo(Path("/proc/cpuinfo").read_text())
    has = [flag for flag in FLAGS if flag in flags]
    lacks = [flag for flag in ("avx512_vnni", "amx_int8") if flag not in flags]
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    isa = ", ".join(has) + (f", no {', no '.join(lacks)}" if lacks else "")
    vm = "VM, " if "hypervisor" in flags else ""
    return (
        f"{datetime.now(timezone.utc):%Y-%m-%d}, {model}, {vm}"
        f"{len(os.sched_getaffinity(0))} cores, {isa}; {memory:.0f} GiB, Linux {os.uname().release}, "
        f"commit {commit_of(root)}"
    )


def parse_process(stat):
    """(command, ticks of CPU time) from the text of /proc/PID/stat."""
    # The command may hold spaces and parentheses; what follows the last one does not.
    command = stat[stat.index("(") + 1 : stat.rindex(")")]
    fields = stat[stat.rindex(")") + 2 :].split()
    return command, int(fields[11]) + int(fields[12])


def process_times():
    """{pid: (command, ticks)} of all processes."""
    times = {}
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            times[int(entry)] = parse_process(Path("/proc", entry, "stat").read_text())
        except (OSError, ValueError):
            continue  # It has just ended.
    return times


def parse_system(text):
    """(busy, stolen) ticks of all CPUs since the start, from the text of /proc/stat."""
    values = [int(value) for value in re.match(r"cpu\s+(.*)", text)[1].split()]
    user, nice, system, _, _, irq, softirq, steal = (values + [0] * 8)[:8]
    return user + nice + system + irq + softirq, steal


def busy_processes(before, after, seconds, own):
    """[(share of one CPU, command, pid)] of what ran between two `process_times`."""
    found = []
    for pid, (command, ticks) in after.items():
        if pid in own:
            continue
        # One that began in between has all its time in there.
        earlier = before.get(pid, (command, 0))[1]
        share = (ticks - earlier) / TICKS / seconds
        if share > 0:
            found.append((share, command, pid))
    return sorted(found, reverse=True)


def check_quiet(seconds=2.0):
    """What others do: '' if nothing, else a sentence that names them."""
    before, (busy, stolen) = process_times(), parse_system(Path("/proc/stat").read_text())
    begin = time.monotonic()
    time.sleep(seconds)
    elapsed = time.monotonic() - begin
    after, (busy_now, stolen_now) = process_times(), parse_system(Path("/proc/stat").read_text())
    # Processes that began and ended in between are in the sum only.
    total = (busy_now - busy) / TICKS / elapsed
    named = busy_processes(before, after, elapsed, {os.getpid()})
    stolen_share = (stolen_now - stolen) / TICKS / elapsed
    problems = []
    if total > QUIET_SHARE:
        names = ", ".join(
            f"{command} ({pid}) {share:.2f}" for share, command, pid in named[:5] if share > NAMED_SHARE
        )
        problems.append(f"others use {total:.2f} CPU: {names or 'short-lived processes'}")
    if stolen_share > QUIET_SHARE:
        problems.append(f"the hypervisor takes {stolen_share:.2f} CPU")
    return "; ".join(problems)


def demand_quiet(force):
    """What disturbs the measurement, '' if nothing does; ends the program unless `force`."""
    disturbance = check_quiet()
    if disturbance and not force:
        sys.exit(f"not quiet: {disturbance}\n--force measures all the same, and says so in the table")
    if disturbance:
        say(f"warning: not quiet: {disturbance}")
    return disturbance


def describe_company(disturbance, others, stolen):
    """What a table says about that."""
    company = f"others had {others:.2f} CPU while it ran, the hypervisor {stolen:.2f}"
    return f"**not on a quiet machine** ({disturbance}); {company}" if disturbance else company


class CpuMeter:
    """How much CPU everybody but this process and its ended children had since `start`."""

    def __init__(self):
        self._begin = time.monotonic()
        self._busy, self._stolen = parse_system(Path("/proc/stat").read_text())
        self._own = self._own_seconds()

    @staticmethod
    def _own_seconds():
        usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        return sum(usage.ru_utime + usage.ru_stime for usage in usages)

    def others(self):
        """(CPU of others, CPU that the hypervisor took), of one CPU."""
        elapsed = time.monotonic() - self._begin
        busy, stolen = parse_system(Path("/proc/stat").read_text())
        own = self._own_seconds() - self._own
        return (
            max(0.0, (busy - self._busy) / TICKS - own) / elapsed,
            (stolen - self._stolen) / TICKS / elapsed,
        )
