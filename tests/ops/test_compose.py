"""docker/compose.yaml without a container engine: names, mounts, ports and versions agree with
the configurations that it puts together."""

import pathlib
import re
import subprocess
from urllib.parse import urlsplit

import dockerfile
import grpc_tools
import pytest
from conftest import PROMETHEUS, ROOT, dashboard, load_yaml, rules, tool
from grpc_tools import protoc

COMPOSE = ROOT / "docker" / "compose.yaml"
SERVICES = load_yaml(COMPOSE)["services"]
# What the compose specification knows, as far as it is used here.
KEYS = {
    "build", "image", "ports", "volumes", "environment", "command", "depends_on", "restart",
    "healthcheck", "profiles", "read_only", "cap_drop", "security_opt", "stop_grace_period",
}


def published():
    """{service: [container port, ...]}."""
    found = {}
    for name, service in SERVICES.items():
        for port in service.get("ports", []):
            host, outside, inside = port.split(":")
            assert host == "127.0.0.1", f"{name} is open to the network"
            assert outside == inside
            found.setdefault(name, []).append(int(inside))
    return found


def exposed(target):
    words = [w for stage in dockerfile.ancestry(target) for rest in stage.all("EXPOSE") for w in rest.split()]
    return sorted(int(word) for word in words)


def mounts(name):
    """{place in the container: path here} of the files and folders of the repository."""
    found = {}
    for volume in SERVICES[name].get("volumes", []):
        here, there, *mode = volume.split(":")
        if here.startswith("."):
            assert mode == ["ro"], volume
            found[there] = (COMPOSE.parent / here).resolve()
    return found


def test_it_has_the_services_that_belong_together():
    assert set(SERVICES) == {"renga", "envoy", "prometheus", "grafana", "locust"}
    for name, service in SERVICES.items():
        assert set(service) <= KEYS, set(service) - KEYS
        assert ("build" in service) != ("image" in service and not service["image"].startswith("renga:"))
        for other, how in service.get("depends_on", {}).items():
            assert how == {"condition": "service_healthy"}
            healthy = "healthcheck" in SERVICES[other] or SERVICES[other]["build"]["target"] == "with-model"
            assert healthy, f"{name} waits for ever for {other}, which has no health check"


def test_what_is_built_are_stages_of_the_dockerfile():
    for service in SERVICES.values():
        build = service.get("build")
        if build:
            assert (COMPOSE.parent / build["context"]).resolve() == ROOT
            assert ROOT / build["dockerfile"] == dockerfile.PATH
            assert build["target"] in dockerfile.stages()
            assert service["image"] == f"renga:{build['target']}"


def test_what_is_mounted_is_there_and_volumes_are_declared():
    declared = set(load_yaml(COMPOSE)["volumes"])
    used = set()
    for name, service in SERVICES.items():
        assert all(path.exists() for path in mounts(name).values()), mounts(name)
        used |= {v.split(":")[0] for v in service.get("volumes", []) if not v.startswith(".")}
    assert used == declared


def test_ports_are_published_once_and_are_those_of_the_images():
    ports = published()
    every = [port for mine in ports.values() for port in mine]
    assert len(every) == len(set(every))
    for name in ("renga", "envoy", "locust"):
        assert sorted(ports[name]) == exposed(SERVICES[name]["build"]["target"])


def test_the_answers_that_run_may_end_before_it_is_killed():
    defaults = load_yaml(ROOT / "configs" / "server.yaml")
    grace = int(re.fullmatch(r"(\d+)s", SERVICES["renga"]["stop_grace_period"]).group(1))
    assert grace > defaults["drain"]["timeout_ms"] / 1000


# ---- Prometheus and Grafana ------------------------------------------------------------------


def test_prometheus_reads_our_files_and_scrapes_the_service():
    places = mounts("prometheus")
    assert places["/etc/prometheus"] == PROMETHEUS
    assert "--config.file=/etc/prometheus/prometheus.yml" in SERVICES["prometheus"]["command"]
    (job,) = load_yaml(PROMETHEUS / "prometheus.yml")["scrape_configs"]
    (files,) = job["file_sd_configs"]
    (targets,) = load_yaml(places[f"/etc/prometheus/{files['files'][0]}"])
    assert (PROMETHEUS / files["files"][0]).exists()
    port = dockerfile.environment("serve")["RENGA_ADMIN_ADDRESS"].rsplit(":", 1)[1]
    assert targets == {"targets": [f"renga:{port}"]}


def test_prometheus_is_the_version_that_the_tests_run():
    done = subprocess.run([tool("prometheus"), "--version"], capture_output=True, text=True)
    version = re.search(r"version (\d+\.\d+\.\d+)", done.stdout + done.stderr).group(1)
    assert SERVICES["prometheus"]["image"] == f"prom/prometheus:v{version}"


def test_grafana_finds_its_source_and_its_boards():
    provisioning = ROOT / "configs" / "grafana" / "provisioning"
    places = mounts("grafana")
    assert places["/etc/grafana/provisioning"] == provisioning
    (source,) = load_yaml(provisioning / "datasources" / "prometheus.yml")["datasources"]
    environment = SERVICES["grafana"]["environment"]
    url = urlsplit(environment[source["url"].removeprefix("$")])
    assert url.port in published()[url.hostname]
    (provider,) = load_yaml(provisioning / "dashboards" / "renga.yml")["providers"]
    boards = places[provider["options"]["path"]]
    home = environment["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
    assert (boards / home.rsplit("/", 1)[1]).exists()
    interval = load_yaml(PROMETHEUS / "prometheus.yml")["global"]["scrape_interval"]
    assert source["jsonData"]["timeInterval"] == interval


def test_the_board_is_whole():
    board = dashboard()
    panels = board["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    assert [panel["title"].split()[0].rstrip(":") for panel in panels if panel["type"] == "row"] == [
        "Overview", "Latency", "Where", "Load", "Batch", "KV", "Refusals", "Gateway", "Memory", "Device",
        "GPU",
    ]
    taken = {}
    for panel in panels:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        for x in range(place["x"], place["x"] + place["w"]):
            for y in range(place["y"], place["y"] + place["h"]):
                assert taken.setdefault((x, y), panel["title"]) == panel["title"], "two panels in one place"
        if panel["type"] != "row":
            assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
            assert panel["targets"], panel["title"]
            has_unit = panel["type"] in ("table", "heatmap") or panel["fieldConfig"]["defaults"]["unit"]
            assert has_unit, panel["title"]


def test_the_lines_on_the_board_are_where_the_alerts_are():
    lines = {}
    for panel in dashboard()["panels"]:
        steps = panel.get("fieldConfig", {}).get("defaults", {}).get("thresholds", {}).get("steps", [])
        if panel["type"] == "timeseries" and len(steps) > 1:
            lines[panel["title"]] = steps[-1]["value"]
    bounds = {rule["alert"]: re.search(r"> ([\d.]+)", rule["expr"]) for rule in rules("alerts")}
    bounds = {alert: float(match.group(1)) for alert, match in bounds.items() if match}
    for title, alert in (
        ("Response", "RengaResponseP99OverTarget"),
        ("First token, by where the prompt's keys and values came from", "RengaFirstTokenP99OverTarget"),
        ("Longest gap within a request", "RengaWorstGap"),
        ("Pages in use, of the pool", "RengaKvPressure"),
        ("File descriptors, of the limit", "RengaFileDescriptors"),
    ):
        assert lines.pop(title) == bounds[alert]
    assert not lines


# ---- Envoy and Locust ------------------------------------------------------------------------


@pytest.fixture(scope="module")
def envoy_config():
    script = ROOT / "docker" / "envoy_config.sh"
    return subprocess.run([script], capture_output=True, text=True, check=True).stdout


def test_envoys_configuration_differs_in_two_addresses_alone(envoy_config):
    own = (ROOT / "configs" / "envoy.yaml").read_text().splitlines()
    changed = [(a, b) for a, b in zip(own, envoy_config.splitlines(), strict=True) if a != b]
    (_, listener), (_, server) = changed
    assert f"address: 0.0.0.0, port_value: {published()['envoy'][0]}" in listener
    port = dockerfile.environment("serve")["RENGA_GRPC_ADDRESS"].rsplit(":", 1)[1]
    assert f"address: renga, port_value: {port}" in server


def make_descriptors(path):
    """renga.pb, made by protoc as the build makes it."""
    arguments = ["protoc", "--include_imports", f"--descriptor_set_out={path}", f"-I{ROOT / 'proto'}"]
    arguments.append(f"-I{pathlib.Path(grpc_tools.__file__).parent / '_proto'}")
    names = ("renga/v1/inference", "google/rpc/status", "google/rpc/error_details")
    assert protoc.main(arguments + [f"{name}.proto" for name in names]) == 0


def test_envoy_accepts_it_in_the_folder_of_its_image(envoy_config, tmp_path):
    """What the stage copies lies below its working folder, where the configuration looks."""
    for rest in dockerfile.stages()["envoy"].all("COPY"):
        *_, source, target = rest.split()
        place = tmp_path / target / source.rsplit("/", 1)[1]
        place.parent.mkdir(parents=True, exist_ok=True)
        if place.name == "renga.pb":
            make_descriptors(place)
        elif place.name == "envoy.yaml":
            place.write_text(envoy_config)
        else:
            place.write_bytes((ROOT / source).read_bytes())
    envoy = subprocess.run([ROOT / "scripts" / "fetch_envoy.sh"], capture_output=True, text=True, check=True)
    command = [envoy.stdout.strip(), "--mode", "validate", "-c", "envoy.yaml"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=60)
    assert done.returncode == 0, done.stderr[-3000:]


def test_envoy_is_the_version_that_the_tests_run():
    script = (ROOT / "scripts" / "fetch_envoy.sh").read_text()
    version = re.search(r"^version=(\S+)$", script, re.MULTILINE).group(1)
    assert dockerfile.stages()["envoy"].base == f"envoyproxy/envoy:v{version}"


def test_locust_asks_the_service_at_its_ports():
    text = " ".join(SERVICES["locust"]["command"])
    for host, port in re.findall(r"\b(\w+):(\d+)", text):
        assert int(port) in published()[host]
    script = (ROOT / "bench" / "locust" / "locustfile.py").read_text()
    for word in SERVICES["locust"]["command"]:
        if word.startswith("--") and word != "--host":
            assert f'"{word}"' in script
        elif word.endswith("User"):
            assert f"class {word}(" in script
