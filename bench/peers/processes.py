"""The processes of a comparison: servers, measuring programs, and a busy neighbour.

Each one dies with this process, and is ended by its own id.
"""

import contextlib
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

# The kernel ends the child when we are gone, however that happened.
DIES_WITH_US = ["setpriv", "--pdeathsig", "KILL"]
START_LIMIT_S = 120.0


def clean_environment():
    """Without RENGA_... and LLAMA_ARG_...: the servers would take those for settings."""
    return {k: v for k, v in os.environ.items() if not k.startswith(("RENGA_", "LLAMA_ARG_"))}


def output_of(words, seconds=900, accept=(0,)):
    """Standard output of a program that must end in time with a status of `accept`."""
    words = [str(word) for word in words]
    try:
        run = subprocess.run(
            DIES_WITH_US + words, capture_output=True, text=True, timeout=seconds, env=clean_environment()
        )
    except subprocess.TimeoutExpired:
        sys.exit(f"{words[0]} took longer than {seconds} s")
    if run.returncode not in accept:
        sys.exit(f"{' '.join(words)} failed ({run.returncode}):\n{run.stderr[-2000:]}{run.stdout[-500:]}")
    return run.stdout


def last_json(text):
    """The JSON object of the last line that is one."""
    for line in reversed(text.splitlines()):
        if line.startswith("{"):
            return json.loads(line)
    raise ValueError("no line of JSON")


def free_port():
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        return held.getsockname()[1]


def stop(process, seconds=20.0):
    """SIGTERM, time to end in order, then SIGKILL."""
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.kill()
    process.wait()


@contextlib.contextmanager
def busy_neighbour():
    """A process that keeps one core busy, in a session of its own.

    Linux shares the CPU among sessions first: only from another one does a neighbour get
    the share that a stranger's process would have.
    """
    process = subprocess.Popen(
        [*DIES_WITH_US, sys.executable, "-c", "while True: pass"], start_new_session=True
    )
    try:
        time.sleep(0.5)
        yield process.pid
    finally:
        process.kill()
        process.wait()


class Server:
    """A server process that listens on ports of 127.0.0.1; ready when constructed."""

    def __init__(self, name, command, port, ready_port, ready_path, log):
        self.name, self.port, self.ready_port = name, port, ready_port
        self._log = open(log, "w")
        begin = time.perf_counter()
        self.process = subprocess.Popen(
            DIES_WITH_US + [str(word) for word in command],
            stdout=self._log, stderr=subprocess.STDOUT, env=clean_environment(),
        )  # fmt: skip
        try:
            self._wait_ready(ready_path, log)
        except BaseException:
            self.stop()
            raise
        self.ready_s = time.perf_counter() - begin

    def _wait_ready(self, path, log):
        end = time.monotonic() + START_LIMIT_S
        while time.monotonic() < end:
            if self.process.poll() is not None:
                sys.exit(f"{self.name} ended before it was ready:\n{Path(log).read_text()[-2000:]}")
            with contextlib.suppress(OSError, http.client.HTTPException):
                if self.get(path, self.ready_port)[0] == 200:
                    return
            time.sleep(0.005)
        sys.exit(f"{self.name} was not ready within {START_LIMIT_S:.0f} s")

    def get(self, path, port, body=None, seconds=60):
        """(status, body) of one HTTP request: POST if it has a body."""
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=seconds)
        try:
            connection.request("POST" if body else "GET", path, body, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        finally:
            connection.close()

    def chat(self, text, max_tokens=16):
        """One whole answer; it must succeed."""
        body = {
            "model": "default", "messages": [{"role": "user", "content": text}],
            "temperature": 0, "max_tokens": max_tokens,
        }  # fmt: skip
        status, answer = self.get("/v1/chat/completions", self.port, json.dumps(body))
        if status != 200:
            sys.exit(f"{self.name} answered {status}: {answer[:500]}")
        return json.loads(answer)

    def resident_bytes(self):
        return resident_bytes(self.process.pid)

    def stop(self):
        stop(self.process)
        self._log.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()


def resident_bytes(pid):
    text = Path("/proc", str(pid), "status").read_text()
    return int(re.search(r"VmRSS:\s+(\d+) kB", text)[1]) * 1024


def metric(text, name):
    """The sum of a metric's samples in Prometheus' text format."""
    samples = [
        float(line.rsplit(" ", 1)[1])
        for line in text.splitlines()
        if re.split(r"[{ ]", line, maxsplit=1)[0] == name
    ]
    if not samples:
        raise ValueError(f"no metric {name}")
    return sum(samples)


def start_renga(binary, model, threads, log, *flags):
    port, admin = free_port(), free_port()
    command = [
        binary, "serve", "--model.path", model, "--device.threads", threads,
        "--grpc.address", "127.0.0.1:0", "--admin.grpc_address", "127.0.0.1:0",
        "--gateway.address", f"127.0.0.1:{port}", "--admin.address", f"127.0.0.1:{admin}", *flags,
    ]  # fmt: skip
    return Server("renga", command, port, admin, "/readyz", log)


def start_llama_server(folder, model, threads, log, *flags):
    port = free_port()
    command = [
        folder / "llama-server", "-m", model, "-t", threads, "--host", "127.0.0.1",
        "--port", port, "--no-webui", *flags,
    ]  # fmt: skip
    return Server("llama-server", command, port, port, "/health", log)
