"""What the operations tests share: tools, and the servers of tests/clients.

  pip install -r tests/clients/requirements.txt
  RENGA_BINARY=build/release/bin/renga pytest tests/ops

Prometheus, promtool and Envoy are the real ones (scripts/install_packages.sh --tests,
scripts/fetch_envoy.sh). There is no container engine and no Grafana: what would run in them is
run outside, as docker/README.md says.
"""

import importlib.util
import json
import os
import pathlib
import shutil
import sys

import pytest
import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROMETHEUS = ROOT / "configs" / "prometheus"
DASHBOARD = ROOT / "configs" / "grafana" / "dashboards" / "renga.json"


def _clients():
    """tests/clients/conftest.py; under a name of its own, for this file has the same."""
    path = ROOT / "tests" / "clients" / "conftest.py"
    spec = importlib.util.spec_from_file_location("clients_conftest", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


clients = _clients()
start = clients.start
tiny_model = clients.tiny_model


def tool(name):
    """The path of a program that install_packages.sh has put on the PATH or into the cache."""
    cache = pathlib.Path(os.environ.get("XDG_CACHE_HOME", pathlib.Path.home() / ".cache"))
    places = [os.environ["PATH"], str(cache / "renga" / "tools"), str(pathlib.Path(sys.executable).parent)]
    found = shutil.which(name, path=os.pathsep.join(places))
    if not found:
        pytest.exit(f"{name} is missing: scripts/install_packages.sh --tests, or the requirements", 2)
    return found


def load_yaml(path):
    return yaml.safe_load(path.read_text())


def rules(name):
    """All rules of configs/prometheus/rules/NAME.yml, in order."""
    groups = load_yaml(PROMETHEUS / "rules" / f"{name}.yml")["groups"]
    return [rule for group in groups for rule in group["rules"]]


def dashboard():
    return json.loads(DASHBOARD.read_text())


def config_defaults():
    """{"kv.pool_bytes": 1073741824, ...} of configs/server.yaml."""
    sections = load_yaml(ROOT / "configs" / "server.yaml")
    return {f"{top}.{key}": value for top, keys in sections.items() for key, value in keys.items()}
