"""A real Prometheus with configs/prometheus, faster: it scrapes and evaluates each second."""

import contextlib
import json
import pathlib
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request

import yaml
from conftest import PROMETHEUS, clients, tool


def free_port():
    with contextlib.closing(socket.socket()) as held:
        held.bind(("127.0.0.1", 0))
        return held.getsockname()[1]


class Prometheus:
    """One process that scrapes `targets`, with all its files below `folder`."""

    def __init__(self, folder, targets):
        self._folder = pathlib.Path(folder)
        config = self._folder / "prometheus"
        shutil.copytree(PROMETHEUS, config)
        settings = yaml.safe_load((config / "prometheus.yml").read_text())
        settings["global"] = {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"}
        (config / "prometheus.yml").write_text(yaml.safe_dump(settings))
        (config / "targets.yml").write_text(yaml.safe_dump([{"targets": targets}]))
        for _ in range(3):  # Another process may take the free port first.
            if self._start(config / "prometheus.yml"):
                return
        raise AssertionError("Prometheus did not start:\n" + self._log())

    def _start(self, config):
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        command = [
            tool("prometheus"),
            f"--config.file={config}",
            f"--storage.tsdb.path={self._folder / 'data'}",
            f"--web.listen-address=127.0.0.1:{port}",
        ]
        with open(self._folder / "log", "w") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log)
        end = time.monotonic() + clients.PATIENCE
        while self.process.poll() is None and time.monotonic() < end:
            with contextlib.suppress(OSError):
                with urllib.request.urlopen(f"{self.url}/-/ready", timeout=5):
                    return True
            time.sleep(0.05)
        self.stop()
        return False

    def _log(self):
        return (self._folder / "log").read_text()

    def get(self, path, **parameters):
        """The `data` of an answer of the API; an error's text fails the test."""
        url = f"{self.url}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        try:
            with urllib.request.urlopen(url, timeout=clients.PATIENCE) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{parameters}: {error.read().decode()}") from None

    def query(self, expression):
        """[({label: value}, number), ...] as of now."""
        data = self.get("query", query=expression)
        if data["resultType"] == "scalar":
            return [({}, float(data["result"][1]))]
        return [(series["metric"], float(series["value"][1])) for series in data["result"]]

    def value(self, expression):
        """The one number, or None."""
        found = self.query(expression)
        assert len(found) < 2, found
        return found[0][1] if found else None

    def stop(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
