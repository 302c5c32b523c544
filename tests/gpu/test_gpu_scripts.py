"""The GPU run's scripts as far as they go without a GPU: command line, clock, files, verdicts, and
that renga reads the models that they write."""

import json
import math
import os
import random
import re
import shutil
import struct
import subprocess
from pathlib import Path

import parity
import pytest
import random_model
import speed
import summary
import write_gguf

HERE = Path(__file__).resolve().parent
BUILD = Path(os.environ.get("RENGA_GPU_CHECK_BUILD", HERE.parents[1] / "build" / "release"))
CHECK = BUILD / "bin" / "renga_gpu_check"
SCRIPT = HERE / "run_gpu_checks.sh"


# ---- Models ----------------------------------------------------------------------------------


def test_a_file_has_its_parts_where_the_format_wants_them(tmp_path):
    writer = write_gguf.GgufWriter()
    writer.string("a.name", "é")
    writer.uint32("a.count", 7)
    writer.float32("a.share", 0.5)
    writer.tensor("one", write_gguf.F32, [3], lambda: struct.pack("<3f", 1, 2, 3))
    writer.tensor("two", write_gguf.F16, [2, 4], lambda: bytes(range(16)))
    writer.write(tmp_path / "x.gguf")
    data = (tmp_path / "x.gguf").read_bytes()
    assert data[:4] == b"GGUF" and struct.unpack_from("<IQQ", data, 4) == (3, 2, 3)
    assert b"\x06\x00\x00\x00\x00\x00\x00\x00a.name\x08\x00\x00\x00\x02\x00\x00\x00\x00\x00\x00\x00\xc3\xa9" in data
    begin = len(data) - 64
    assert begin % 32 == 0 and data[begin : begin + 12] == struct.pack("<3f", 1, 2, 3)
    assert data[begin + 32 : begin + 48] == bytes(range(16))
    (offset,) = struct.unpack_from("<Q", data, data.index(b"two") + 3 + 4 + 16 + 4)
    assert offset == 32


def test_bytes_that_are_too_few_are_noticed(tmp_path):
    writer = write_gguf.GgufWriter()
    writer.tensor("one", write_gguf.F32, [3], lambda: bytes(8))
    with pytest.raises(AssertionError, match="one: 8 bytes, 12"):
        writer.write(tmp_path / "x.gguf")


@pytest.mark.parametrize("kind, dims, size", [("q4_1", [64, 3], 120), ("q8_0", [64, 3], 204), ("f16", [5, 2], 20)])
def test_sizes_of_blocks(kind, dims, size):
    assert write_gguf.tensor_bytes(write_gguf.NAMES[kind], dims) == size


def test_the_shapes_are_those_of_models_of_that_size():
    def billions(size):
        tensors = random_model.tensors(random_model.SIZES[size])
        return sum(max(t.rows, 1) * t.cols for t in tensors) / 1e9

    assert billions("1b") == pytest.approx(1.24, abs=0.01)
    assert billions("8b") == pytest.approx(8.03, abs=0.01)
    for shape in random_model.SIZES.values():
        assert shape.heads % shape.kv_heads == 0 and shape.ffn % 32 == 0 and shape.dim % 32 == 0


def random_bytes(tensor, of):
    values = random.Random(tensor.gguf)
    count = max(tensor.rows, 1) * tensor.cols
    deviation = tensor.deviation if tensor.rows else 0.1
    mean = 0.0 if tensor.rows else 1.0
    numbers = [values.gauss(mean, deviation) for _ in range(count)]
    return struct.pack(f"<{count}{'f' if of == write_gguf.F32 else 'e'}", *numbers)


def logits(folder, *options):
    """Of the tiny model's tokens, as rows."""
    shape = random_model.SIZES["tiny"]
    model = folder / "tiny.gguf"
    if not model.exists():
        random_model.writer_of(shape, "f16", random_bytes).write(model)
    ids = parity.token_ids(70, shape.vocab)
    (folder / "tokens").write_bytes(struct.pack(f"<{len(ids)}i", *ids))
    out = folder / "logits"
    paths = ["--model", model, "--tokens", folder / "tokens", "--out", out]
    done = subprocess.run([CHECK, "logits", *paths, *options], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    data = out.read_bytes()
    assert len(data) == 4 * len(ids) * shape.vocab
    return data, struct.unpack(f"<{len(data) // 4}f", data)


def test_renga_reads_the_model_and_slices_change_no_bit(tmp_path):
    data, values = logits(tmp_path, "--device", "cpu")
    deviation = math.sqrt(sum(v * v for v in values) / len(values))
    assert 1.0 < deviation < 9.0, "logits have a deviation of about 3"
    assert logits(tmp_path, "--device", "cpu", "--prefill", "48")[0] == data


def test_the_emulated_gpu_gives_the_cpus_logits(tmp_path):
    _, cpu = logits(tmp_path, "--device", "cpu")
    data, emulated = logits(tmp_path, "--device", "emulated")
    difference = math.sqrt(sum((a - b) ** 2 for a, b in zip(cpu, emulated)) / sum(a * a for a in cpu))
    assert difference < 1e-2
    assert logits(tmp_path, "--device", "emulated", "--prefill", "48", "--graphs", "0")[0] == data


def test_memory_is_reported(tmp_path):
    logits(tmp_path, "--device", "cpu")
    options = ["--device", "emulated", "--model", tmp_path / "tiny.gguf", "--out", tmp_path / "memory.json"]
    subprocess.run([CHECK, "memory", *options], check=True)
    report = json.loads((tmp_path / "memory.json").read_text())
    assert report["kv_bytes_per_token"] == 2 * 2 * 16 * 2 * 2
    assert report["weights"] > 0 and report["loading"] >= report["weights"] + report["kv_pool"] > 0


@pytest.mark.parametrize(
    "options, message",
    [
        (["dance"], "none of kernels"),
        (["kernels", "--device", "tpu"], "no device"),
        (["kernels", "--size", "huge"], "small or large"),
        (["kernels", "--device", "emulated", "--family", "no"], "no family"),
        (["logits", "--tokens", "/nowhere"], "cannot be read"),
        (["logits", "--nonsense", "1"], "unknown"),
        (["speed", "--device"], "needs a value"),
    ],
)
def test_wrong_commands_are_answered(options, message):
    done = subprocess.run([CHECK, *options], capture_output=True, text=True)
    assert done.returncode == 2 and message in done.stderr


# ---- Verdicts --------------------------------------------------------------------------------

GOOD = {"max_abs": 0.1, "mean_abs": 0.01, "kl_mean": 1e-5, "kl_p99": 1e-4, "top1": 0.99}
BF16 = {"max_abs": 0.2, "mean_abs": 0.02, "kl_mean": 5e-5, "kl_p99": 5e-4, "top1": 0.98}


def test_a_close_model_with_equal_bits_is_right():
    assert parity.verdict(GOOD, BF16, {"graphs off": True}) == []


@pytest.mark.parametrize(
    "change, same, message",
    [
        ({"kl_mean": 6e-5}, True, "mean KL"),
        ({"kl_p99": 6e-4}, True, "99th"),
        ({"top1": 0.9}, True, "best token"),
        ({"max_abs": math.nan}, True, "not finite"),
        ({}, False, "other bits with graphs off"),
    ],
)
def test_what_is_wrong_with_a_model_is_named(change, same, message):
    (wrong,) = parity.verdict(GOOD | change, BF16, {"graphs off": same})
    assert message in wrong


def test_tokens_are_in_the_vocabulary_and_not_all_the_same():
    ids = parity.token_ids(320, 128256)
    assert len(set(ids)) > 300 and all(0 <= i < 128256 for i in ids)


def test_what_step_bench_prints_becomes_rows():
    text = 'a table\n{"backend":"cuda","threads":16,"bytes_per_token":2e9,"prefill 2048":{"median_ms":50.0},' + (
        '"decode batch 1":{"median_ms":1.0,"p99_ms":2.0}}\n'
    )
    rows = speed.engine_rows(text, "8b-f16", 1)
    assert rows == [
        "engine/8b-f16/graphs:1/prefill_2048,50000,0,0,0,0",
        "engine/8b-f16/graphs:1/decode_batch_1,1000,2000,0,2e+09,0",
    ]


def test_rows_have_one_header(tmp_path, capsys):
    for _ in range(2):
        speed.Out(tmp_path / "perf.csv").line(speed.row("x", 1e-6, 1e3, 2e3))
    rows = summary.read_perf(tmp_path / "perf.csv")
    assert rows == {"x": {"us": 1.0, "gb_per_s": 1.0, "gflop_per_s": 2.0, "bytes": 1e3, "flops": 2e3}}


def perf(rates):
    lines = [speed.HEADER] + [speed.row(name, seconds, moved, flops) for name, seconds, moved, flops in rates]
    return "\n".join(lines) + "\nroof/cut,1"


def results(folder, kernels=("rows,rms/1,1e-4,5e-4,ok,\"\"",), wrong=()):
    (folder / "kernels.csv").write_text("\n".join(kernels) + "\n")
    case = {"case": "1b-f16", "ours": GOOD, "transformers_bf16": BF16, "wrong": list(wrong)}
    (folder / "e2e.json").write_text(json.dumps(case) + "\n")
    (folder / "perf.csv").write_text(
        perf(
            [
                ("roof/copy", 1e-3, 4.3e9, 0),
                ("decode_attention/f16/hd:128/batch:8/context:8192", 1e-4, 3.9e8, 0),
                ("torch/decode_attention/f16/hd:128/batch:8/context:8192", 2e-4, 3.9e8, 0),
                ("engine/8b-f16/graphs:1/decode_batch_1", 5e-3, 16e9, 0),
            ]
        )
    )
    (folder / "memory.json").write_text('{"total":150000000000,"kv_bytes_per_token":131072}\n')


STEPS = ["probe 0 3", "build 0 60", "kernels 0 50", "parity 0 90", "speed 0 120", "memory 0 5"]


def test_a_good_run_is_summed_up(tmp_path):
    results(tmp_path)
    text, status = summary.summary(tmp_path, STEPS)
    assert status == 0
    assert "kernels: rows 1/1" in text and "parity 1b-f16: ok mean KL 1.0e-05" in text
    assert "decode attention, 8 x 8192, f16: 91% of roof/copy (goal 85%) met" in text
    assert "8B f16 decode, batch 1: 74% of roof/copy (goal 85%) MISSED" in text
    assert "prefill attention, 8192, f16: not measured" in text
    assert "2.00 times as fast as torch/decode_attention" in text
    assert "total 150000.0 MB" in text and text.endswith("nothing wrong in what was checked\n")


def test_wrong_results_and_failed_steps_show(tmp_path):
    results(tmp_path, kernels=['rows,rms/1,1,5e-4,WRONG,"row 3"'], wrong=["mean KL 1"])
    text, status = summary.summary(tmp_path, STEPS)
    assert status == 1 and "WRONG rows/rms/1: error 1, bound 5e-4 row 3" in text and "2 wrong" in text
    text, status = summary.summary(tmp_path, [*STEPS, "sanitizer 125 0", "memory 124 30", "speed 2 1"])
    assert status == 125 and "NOT RUN" in text and "OUT OF TIME" in text and "FAILED (2)" in text


def test_what_is_not_there_is_said(tmp_path):
    text, status = summary.summary(tmp_path, STEPS)
    assert status == 1 and "kernels: no results" in text and "parity: no results" in text
    assert "memory: no results" in text and text.count("not measured") == len(summary.GOALS)
    assert summary.summary(tmp_path, ["probe 0 1"])[1] == 0, "what was not asked for is not missing"


def test_a_step_that_failed_is_no_good_news(tmp_path):
    results(tmp_path)
    text, status = summary.summary(tmp_path, [*STEPS[:-1], "memory 127 1"])
    assert status == 127 and text.endswith("nothing wrong in what was checked, but not all of it was\n")


def test_what_no_sanitizer_looked_at_is_said(tmp_path):
    results(tmp_path)
    steps = [*STEPS, "sanitizer 0 3"]
    assert "sanitizer: nothing was checked" in summary.summary(tmp_path, steps)[0]
    log = "== memcheck rows\nx\n== status 0\n== racecheck rows\n== status 99\n== racecheck product\n== status 124\n"
    (tmp_path / "sanitizer.log").write_text(
        log + "== initcheck rows\n== status 255\n== initcheck sampling\n== status 125\n== initcheck product\n"
    )
    text, _ = summary.summary(tmp_path, steps)
    assert "sanitizer: ok: memcheck rows; ERRORS: racecheck rows; out of time: racecheck product; " in text
    assert "could not run (255): initcheck rows; no time left: initcheck sampling\n" in text


def test_what_is_measured_runs_on_the_device_that_was_asked_for(tmp_path):
    bench = tmp_path / "step_bench"
    result = '{"bytes_per_token":2e9,"decode batch 1":{"median_ms":1.0}}'
    bench.write_text(f'#!/bin/sh\necho "$@" >>{tmp_path}/calls\necho \'{result}\'\n')
    bench.chmod(0o755)
    speed.engine(speed.Out(tmp_path / "perf.csv"), bench, "cuda:3", tmp_path / "1b-q4_1.gguf")
    calls = (tmp_path / "calls").read_text().splitlines()
    assert len(calls) == 2 and all("1b-q4_1.gguf --device cuda:3 --graphs" in call for call in calls)
    assert "engine/1b-q4_1/graphs:0/decode_batch_1" in summary.read_perf(tmp_path / "perf.csv")


# ---- The build -------------------------------------------------------------------------------


@pytest.mark.skipif(not (shutil.which("nvcc") or Path("/usr/local/cuda/bin/nvcc").exists()), reason="no nvcc here")
def test_kernels_are_compiled_without_ccache_too(tmp_path):
    """A bare machine has none."""
    options = ["-DRENGA_ENGINE_ONLY=ON", "-DRENGA_CUDA=ON", "-DCCACHE=OFF", "-DCMAKE_CUDA_ARCHITECTURES=90"]
    command = ["cmake", "-S", HERE.parents[1], "-B", tmp_path, "-G", "Ninja", *options]
    subprocess.run(command, check=True, capture_output=True)
    rules = (tmp_path / "CMakeFiles" / "rules.ninja").read_text()
    assert re.search(r"command = \S*/keep_ptxas\.sh \S*/nvcc ", rules)


# ---- The script ------------------------------------------------------------------------------


def run_script(out, *options, **environment):
    return subprocess.run(
        ["bash", SCRIPT, "--out", out, *options], capture_output=True, text=True, timeout=300,
        env=os.environ | {"OUT": "/nowhere", "RENGA_GPU_MODELS": str(out / "models")} | environment,
    )  # fmt: skip


def test_a_step_runs_on_a_build_that_is_there(tmp_path):
    done = run_script(tmp_path, "--only=kernels", "--build", BUILD, "--device", "emulated", "--family=sampling")
    assert done.returncode == 0, done.stdout + (tmp_path / "log.txt").read_text()
    found = re.search(r"kernels: sampling (\d+)/(\d+)", done.stdout)
    assert found and found[1] == found[2] != "0"
    assert "step build" not in done.stdout and "step kernels: ok" in done.stdout
    assert (tmp_path / "summary.txt").read_text() in done.stdout
    assert {path.name for path in tmp_path.iterdir()} == {"kernels.csv", "log.txt", "summary.txt"}


def test_a_step_that_fails_does_not_stop_the_others(tmp_path):
    """On a machine without a GPU every step fails, in its own way."""
    done = run_script(tmp_path, "--build", BUILD, "--budget", "60", PATH="/usr/bin:/bin")
    assert done.returncode != 0
    for step in ("probe", "kernels", "parity", "speed", "memory"):
        assert f"step {step}: " in done.stdout
    assert "step kernels: FAILED (2)" in done.stdout and "kernels: no results" in done.stdout
    assert len([path for path in tmp_path.iterdir() if path.is_file()]) <= 8


@pytest.mark.parametrize("status, step", [(0, "ok"), (99, "FAILED (1)"), (3, "FAILED (2)")])
def test_what_a_sanitizer_says_counts(tmp_path, status, step):
    tool = tmp_path / "tools" / "compute-sanitizer"
    tool.parent.mkdir()
    tool.write_text(f"#!/bin/sh\nexit {status}\n")
    tool.chmod(0o755)
    path = f"{tool.parent}:/usr/bin:/bin"
    done = run_script(tmp_path, "--only", "sanitizer", "--build", BUILD, "--budget", "60", PATH=path)
    assert f"step sanitizer: {step}" in done.stdout
    assert done.returncode == {0: 0, 99: 1, 3: 2}[status]


@pytest.mark.parametrize("room", [30_000_000, 65_536])
def test_models_go_where_there_is_room(tmp_path, room):
    if Path("/dev/shm/renga/8b-f16.gguf").exists():
        pytest.skip("they are there already")
    df = tmp_path / "tools" / "df"
    df.parent.mkdir()
    df.write_text(f"#!/bin/sh\necho Filesystem 1024-blocks Used Available\necho shm 99 1 {room} 1% /dev/shm\n")
    df.chmod(0o755)
    options = ["--build", tmp_path / "build", "--only", "memory", "--budget", "8"]
    run_script(tmp_path, *options, PATH=f"{df.parent}:/usr/bin:/bin", RENGA_GPU_MODELS="")
    expected = "/dev/shm/renga" if room > 25_000_000 else f"{tmp_path}/build/models"
    assert f"models in {expected}\n" in (tmp_path / "log.txt").read_text()


def test_without_time_nothing_is_run(tmp_path):
    done = run_script(tmp_path, "--budget", "8", "--only", "kernels,memory", "--build", BUILD)
    assert done.returncode == 125 and done.stdout.count("NOT RUN") == 2


def test_a_step_that_hangs_is_ended(tmp_path):
    fake = tmp_path / "build" / "bin" / "renga_gpu_check"
    fake.parent.mkdir(parents=True)
    fake.write_text("#!/bin/sh\nsleep 60\n")
    fake.chmod(0o755)
    done = run_script(tmp_path, "--budget", "11", "--only", "kernels", "--build", tmp_path / "build")
    assert done.returncode == 124 and "OUT OF TIME after 6 s" in done.stdout


@pytest.mark.parametrize("options", [["--only", "dance"], ["--budget", "soon"], ["--nonsense"]])
def test_wrong_options_are_refused(tmp_path, options):
    done = run_script(tmp_path, *options)
    assert done.returncode == 2 and done.stderr


def test_help_lists_every_step(tmp_path):
    steps = re.search(r"^all_steps=\((.*)\)", SCRIPT.read_text(), re.MULTILINE)[1]
    assert steps in run_script(tmp_path, "--help").stdout
