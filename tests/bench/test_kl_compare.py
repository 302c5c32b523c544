"""The parts of the KL comparison that decide something: splitting, parsing, the interval."""

import struct

import bench_path  # noqa: F401  # isort: skip

import kl_compare
import pytest


def base_file(path, n_ctx, n_vocab, n_chunk):
    row = 2 * (2 * ((n_vocab + 1) // 2) + 4)
    scored = n_ctx - 1 - n_ctx // 2
    tokens = [struct.pack(f"<{n_ctx}i", *range(i, i + n_ctx)) for i in range(n_chunk)]
    data = [bytes([i]) * (row * scored) for i in range(n_chunk)]
    header = b"_logits_" + struct.pack("<3i", n_ctx, n_vocab, n_chunk)
    path.write_bytes(header + b"".join(tokens) + b"".join(data))
    return tokens, data


@pytest.mark.parametrize("n_vocab", [5, 6])
def test_each_window_becomes_a_file_of_its_own(tmp_path, n_vocab):
    tokens, data = base_file(tmp_path / "base", 8, n_vocab, 3)
    parts = list(kl_compare.split_base(tmp_path / "base"))
    header = b"_logits_" + struct.pack("<3i", 8, n_vocab, 1)
    assert parts == [header + t + d for t, d in zip(tokens, data)]
    assert len(data[0]) == 3 * 2 * (6 + 4), "an odd vocabulary is padded"


def test_other_files_are_refused(tmp_path):
    (tmp_path / "base").write_bytes(b"GGUF....")
    with pytest.raises(ValueError, match="no KL base file"):
        list(kl_compare.split_base(tmp_path / "base"))


def test_what_the_programs_print_is_read():
    text = "x\nMean    KLD:   0.003512 ±   0.000101\nMaximum KLD:   1.0\n"
    assert kl_compare.MEAN_KLD.search(text)[1] == "0.003512"
    text = "window 0 0.001234\nwindow 11 0.000002\nmean 0.000618 +- 0.1\n"
    assert kl_compare.WINDOW.findall(text) == ["0.001234", "0.000002"]


def test_the_interval_is_paired_by_window():
    theirs = [0.001, 0.004, 0.010, 0.002]
    low, high = kl_compare.ratio_interval([x / 2 for x in theirs], theirs, draws=200)
    assert low == pytest.approx(0.5) and high == pytest.approx(0.5)
    low, high = kl_compare.ratio_interval([0.002, 0.001, 0.010, 0.004], theirs, draws=2000)
    assert low < 1.0 < high
