"""docker/Dockerfile without a container engine: what its build stage copies is enough to build,
what it installs runs with the settings of its run stage, and its lists are complete."""

import json
import os
import pathlib
import re
import shutil
import subprocess
import urllib.request

import dockerfile
import pytest
from conftest import ROOT, clients, config_defaults, tool


def run(*command, **options):
    done = subprocess.run(command, capture_output=True, text=True, **options)
    assert done.returncode == 0, f"{command}: {done.stdout[-3000:]}{done.stderr[-3000:]}"
    return done.stdout


def copied(line, folder):
    """Puts into `folder` what the stages of `line` copy out of the repository."""
    for stage in line:
        for source, target in stage.copies():
            place = folder / target if target.endswith("/") else (folder / target).parent
            place.mkdir(parents=True, exist_ok=True)
            from_path = ROOT / source
            to_path = place / (from_path if target.endswith("/") else pathlib.Path(target)).name
            if from_path.is_dir():
                shutil.copytree(from_path, to_path, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy2(from_path, to_path)
    return folder


@pytest.fixture(scope="module")
def prefix(tmp_path_factory):
    """What the build stage leaves in /opt/renga, built from what it copies alone."""
    source = copied(dockerfile.ancestry("build"), tmp_path_factory.mktemp("src"))
    (command,) = (rest for rest in dockerfile.stages()["build"].all("RUN") if "build.sh" in rest)
    script, place = re.search(r"(docker/build\.sh) (\S+)$", command).groups()
    assert place == "/opt/renga"
    target = tmp_path_factory.mktemp("opt") / "renga"
    run(str(source / script), str(target), timeout=3000)
    return target


@pytest.fixture(scope="module")
def program(prefix):
    return str(prefix / "bin" / "renga")


def test_hadolint_has_nothing_to_say():
    run(tool("hadolint"), str(dockerfile.PATH))


def test_what_is_copied_is_there_and_reaches_the_builder_and_nothing_else_does():
    sources = {source for stage in dockerfile.stages().values() for source, _ in stage.copies()}
    for source in sources:
        assert (ROOT / source).exists(), source
        assert dockerfile.is_sent(source), f"{source} is in .dockerignore"
    known = run("git", "-C", str(ROOT), "ls-files", "--cached", "--others", "--exclude-standard")
    for path in known.splitlines():
        if dockerfile.is_sent(path):
            assert any(path == s or path.startswith(f"{s}/") for s in sources), f"{path} is sent for nothing"
    assert not dockerfile.is_sent("build/release/bin/renga")
    assert not dockerfile.is_sent(".git/config")


def test_every_base_is_a_stage_or_has_a_version():
    known = dockerfile.stages()
    for stage in known.values():
        name, _, tag = stage.base.partition(":")
        assert stage.base in known or (tag and tag != "latest"), stage.base


def test_the_images_that_serve_do_not_run_as_root():
    for name in ("serve", "serve-cuda", "with-model", "locust"):
        users = [user for stage in dockerfile.ancestry(name) for user in stage.all("USER")]
        assert int(users[-1].split(":")[0]) > 0


def test_the_installation_holds_the_program_and_what_belongs_to_it(prefix):
    found = {str(p.relative_to(prefix)) for p in prefix.rglob("*") if p.is_file()}
    assert {
        "bin/renga",
        "share/doc/renga/LICENSE",
        "share/renga/server.yaml",
        "share/renga/renga.pb",
        "share/renga/proto/renga/v1/inference.proto",
    } <= found
    assert not [path for path in found if path.endswith((".a", ".h", ".cc", ".cmake"))]
    for stage in dockerfile.stages().values():
        for rest in stage.all("COPY"):
            path = re.match(r"--from=build /opt/renga/(\S+) ", rest)
            # What the build stage itself adds is the other script's (test_compose.py).
            assert not path or path.group(1) in found | {"share/renga/envoy.yaml"}


# ---- Libraries -------------------------------------------------------------------------------


def owners(paths):
    """The Debian packages of libraries; packages know them with or without /usr."""
    names = {}
    for path in paths:
        real = os.path.realpath(path)
        names |= dict.fromkeys((path, real, real.removeprefix("/usr"), f"/usr{path}"), path)
    # It fails for the names that no package has, and prints the others.
    done = subprocess.run(["dpkg-query", "-S", *names], capture_output=True, text=True)
    found = dict(reversed(line.split(": ", 1)) for line in done.stdout.splitlines())
    missing = set(paths) - {names[name] for name in found}
    assert not missing, f"no package has {missing}"
    return {package.split(":")[0] for package in found.values()}


def libraries(program):
    """{soname: path} of all that the dynamic linker loads."""
    return dict(re.findall(r"^\s*(\S+) => (/\S+)", run("ldd", program), re.MULTILINE))


def listed():
    lines = (ROOT / "docker" / "runtime_packages.txt").read_text().splitlines()
    return {line for line in lines if not line.startswith("#")}


# In every Debian, for apt is built with them.
IN_THE_BASE = {"libc6", "libgcc-s1", "libstdc++6"}


def test_the_run_stage_installs_what_the_program_is_linked_to_and_no_more(program):
    loaded = libraries(program)
    needed = re.findall(r"\(NEEDED\).*\[(\S+)\]", run("readelf", "-d", program))
    direct = owners([loaded[name] for name in needed if name in loaded])
    assert listed() - {"curl"} == direct - IN_THE_BASE


def test_what_those_packages_depend_on_covers_all_that_is_loaded(program):
    lines = run("dpkg-query", "-W", "-f", "${Package}\t${Pre-Depends}, ${Depends}\n").splitlines()
    depends = {}
    for line in lines:
        package, names = line.split("\t")
        depends[package] = {re.split(r"[ :(]", name.strip())[0] for name in re.split(r"[,|]", names)}
    reached, open_ones = set(), listed() | IN_THE_BASE
    while open_ones:
        package = open_ones.pop()
        if package and package not in reached:
            reached.add(package)
            open_ones |= depends.get(package, set())
    assert owners(libraries(program).values()) <= reached


# ---- Running it ------------------------------------------------------------------------------


def test_the_environment_of_the_image_names_real_settings():
    keys = {key.replace(".", "_").upper() for key in config_defaults()}
    for name in ("serve", "serve-cuda", "with-model"):
        for variable in dockerfile.environment(name):
            others = ("PATH", "NVIDIA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES")
            assert variable in others or variable.removeprefix("RENGA_") in keys, variable


def test_the_build_for_gpus_is_the_other_one_with_one_option():
    (plain,) = (rest for rest in dockerfile.stages()["build"].all("RUN") if "build.sh" in rest)
    (cuda,) = dockerfile.stages()["build-cuda"].all("RUN")
    assert cuda.startswith(f"{plain} -DRENGA_CUDA=ON ")
    assert dockerfile.stages()["build-cuda"].base == dockerfile.stages()["build"].base
    assert "option(RENGA_CUDA " in (ROOT / "CMakeLists.txt").read_text()


def test_the_image_is_what_fetch_model_fetches():
    model = re.search(r"^name=(\S+)$", (ROOT / "scripts" / "fetch_model.sh").read_text(), re.MULTILINE)
    assert dockerfile.environment("with-model")["RENGA_MODEL_PATH"] == f"/models/{model.group(1)}"


def test_ports_of_the_image_are_those_it_listens_at():
    stage = dockerfile.stages()["runtime"]
    settings = dockerfile.environment("serve")
    addresses = [v for k, v in settings.items() if k.startswith("RENGA_") and k.endswith("_ADDRESS")]
    assert {a.rsplit(":", 1)[0] for a in addresses} == {"0.0.0.0"}
    assert sorted(a.rsplit(":", 1)[1] for a in addresses) == sorted(stage.last("EXPOSE").split())
    admin = settings["RENGA_ADMIN_ADDRESS"].rsplit(":", 1)[1]
    assert f"http://127.0.0.1:{admin}/readyz" in stage.last("HEALTHCHECK")


def test_the_installed_program_serves_as_the_image_runs_it(program, tmp_path, tmp_path_factory):
    """With its user, settings, health check and end; only ports and model are others."""
    settings = dockerfile.environment("serve")
    model = clients.make_tiny_model(tmp_path / "tiny.gguf", context=4096)
    settings.update(RENGA_MODEL_PATH=model, RENGA_ADMIN_GRPC_ADDRESS="127.0.0.1:0", PATH=os.environ["PATH"])
    for name in list(settings):
        if name.endswith("_ADDRESS"):
            settings[name] = settings[name].rsplit(":", 1)[0] + ":0"
    stage = dockerfile.stages()["runtime"]
    assert json.loads(stage.last("ENTRYPOINT")) == ["renga"]
    command = [program, *json.loads(stage.last("CMD"))]
    if os.geteuid() == 0:
        # The folders of pytest are root's alone.
        uid, gid = stage.last("USER").split(":")
        ours = tmp_path_factory.getbasetemp().parent
        for folder in (tmp_path, *tmp_path.parents, *pathlib.Path(program).parents):
            if folder == ours or ours in folder.parents:
                folder.chmod(0o711)
        user = ["setpriv", f"--reuid={uid}", f"--regid={gid}", "--clear-groups", "--no-new-privs"]
        command = user + command
    process = subprocess.Popen(command, env=settings, stderr=subprocess.PIPE, text=True)
    try:
        for line in process.stderr:
            event = json.loads(line)
            if event["event"] == "listening":
                port = event["admin"].rsplit(":", 1)[1]
            if event["event"] == "ready":
                break
        health = json.loads(re.search(r"CMD (\[.*\])", stage.last("HEALTHCHECK")).group(1))
        run(*(word.replace(":9464/", f":{port}/") for word in health))
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
            assert b"renga_ready" in answer.read()
        process.terminate()
        process.communicate(timeout=clients.PATIENCE)
        assert process.returncode == 0
    finally:
        if process.poll() is None:
            process.kill()
            process.communicate()
