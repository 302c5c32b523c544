"""Mean KL of renga and of llama.cpp to one base, window by window.

    kl_compare.py --base FILE --model FILE.gguf --kl-bench PROGRAM --llama PROGRAM
                  [--threads 2] [--variant NAME=FLAGS]...

FILE is what `llama-perplexity --kl-divergence-base` wrote. A variant is a way to run kl_bench,
for example "fast=--precision fast"; the first one is compared with llama.cpp. Prints each
side's mean, and the ratio of the means with a 95 % interval: the windows are drawn again with
repetition, the same ones for both sides.
"""

import argparse
import os
import random
import re
import struct
import subprocess
import sys
import tempfile

DRAWS = 10000
MEAN_KLD = re.compile(r"^Mean\s+KLD:\s+(-?[0-9.]+)", re.M)
WINDOW = re.compile(r"^window \d+ (-?[0-9.]+)$", re.M)


def split_base(path):
    """Yields, for each window of a base file, the bytes of a file that holds it alone."""
    with open(path, "rb") as base:
        if base.read(8) != b"_logits_":
            raise ValueError(f"{path} is no KL base file")
        n_ctx, n_vocab, n_chunk = struct.unpack("<3i", base.read(12))
        tokens = [base.read(4 * n_ctx) for _ in range(n_chunk)]
        row = 2 * (2 * ((n_vocab + 1) // 2) + 4)
        for window in tokens:
            data = base.read(row * (n_ctx - 1 - n_ctx // 2))
            yield b"_logits_" + struct.pack("<3i", n_ctx, n_vocab, 1) + window + data


def output_of(command):
    """Standard output and error of a command that has to succeed."""
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: exit {done.returncode}\n{done.stderr[-2000:]}")
    return done.stdout + done.stderr


def llama_windows(args):
    """llama.cpp's mean of each window; its own running means have too few digits."""
    means = []
    for part in split_base(args.base):
        with tempfile.NamedTemporaryFile(dir=os.path.dirname(args.base) or ".") as file:
            file.write(part)
            file.flush()
            text = output_of(
                [args.llama, "-m", args.model, "--kl-divergence-base", file.name, "--kl-divergence"]
                + ["-t", str(args.threads), "-c", "512", "-ngl", "0"]
            )
        found = MEAN_KLD.search(text)
        if not found:
            sys.exit(f"{args.llama} printed no mean KLD:\n{text[-2000:]}")
        means.append(float(found[1]))
    return means


def renga_windows(args, flags):
    command = [args.kl_bench, "--model", args.model, "--base", args.base]
    text = output_of(command + ["--threads", str(args.threads)] + flags.split())
    return [float(value) for value in WINDOW.findall(text)]


def mean(values):
    return sum(values) / len(values)


def ratio_interval(ours, theirs, draws=DRAWS, seed=1):
    """The 2.5 and 97.5 percentiles of mean(ours) / mean(theirs) over drawn windows."""
    dice = random.Random(seed)
    ratios = []
    for _ in range(draws):
        drawn = [dice.randrange(len(ours)) for _ in ours]
        ratios.append(sum(ours[i] for i in drawn) / sum(theirs[i] for i in drawn))
    ratios.sort()
    return ratios[int(0.025 * draws)], ratios[int(0.975 * draws)]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    for name in ("base", "model", "kl-bench", "llama"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--variant", action="append", default=[])
    args = parser.parse_args()
    theirs = llama_windows(args)
    print(f"{len(theirs)} windows of 512, 255 scored positions each")
    print(f"{'':24}{'mean KL':>10}{'/ llama.cpp':>13}{'95 % interval':>20}")
    print(f"{'llama.cpp':24}{mean(theirs):10.6f}")
    for variant in args.variant or ["fast=--precision fast"]:
        name, _, flags = variant.partition("=")
        ours = renga_windows(args, flags)
        if len(ours) != len(theirs):
            sys.exit(f"{name}: {len(ours)} windows, llama.cpp has {len(theirs)}")
        low, high = ratio_interval(ours, theirs)
        ratio = mean(ours) / mean(theirs)
        interval = f"{low:.3f} .. {high:.3f}"
        print(f"{'renga ' + name:24}{mean(ours):10.6f}{ratio:13.3f}{interval:>20}", flush=True)


if __name__ == "__main__":
    main()
