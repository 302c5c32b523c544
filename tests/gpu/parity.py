"""Our logits against those of transformers in f32, on random models made here.

    parity.py CHECK OUT.json FOLDER [--device cuda:0] [CASE...]

CHECK is renga_gpu_check; models and logits go to FOLDER. A case is SIZE-TYPE, f16 weights by
default: 1b-f16 1b-q8_0 1b-q4_1 8b-f16. OUT.json gets one line per case, as it is done.

The yardstick is transformers itself in bf16: our distance from f32 must not be larger than its
own. Decoded tokens are given, never sampled: a random model flips on noise.
"""

import argparse
import json
import math
import struct
import subprocess
import sys
import time
from pathlib import Path

import random_model
import write_gguf

PREFILL, DECODE = 256, 64
CASES = ["1b-f16", "8b-f16", "1b-q4_1", "1b-q8_0"]


def token_ids(count, vocab):
    """Any tokens will do, but not the same ones."""
    ids, state = [], 1
    for _ in range(count):
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        ids.append((state >> 33) % vocab)
    return ids


def verdict(ours, yardstick, same):
    """What is wrong with a case's figures; empty if nothing is. `same`: {what: equal bits}."""
    wrong = [f"other bits with {what}" for what, equal in same.items() if not equal]
    if not all(math.isfinite(value) for value in ours.values()):
        return wrong + ["not finite"]
    if ours["kl_mean"] > max(yardstick["kl_mean"], 1e-6):
        wrong.append(f"mean KL {ours['kl_mean']:.2e}, transformers in bf16 {yardstick['kl_mean']:.2e}")
    if ours["kl_p99"] > max(yardstick["kl_p99"], 1e-5):
        wrong.append(f"99th percentile of KL {ours['kl_p99']:.2e}, bf16 {yardstick['kl_p99']:.2e}")
    if ours["top1"] < yardstick["top1"] - 0.01:
        wrong.append(f"same best token {ours['top1']:.3f}, bf16 {yardstick['top1']:.3f}")
    return wrong


def figures(torch, logits, wanted):
    """Distance of logits from the wanted ones, both [tokens, vocab] in f32."""
    log_p, log_q = wanted.double().log_softmax(-1), logits.double().log_softmax(-1)
    kl = (log_p.exp() * (log_p - log_q)).sum(-1)
    difference = (logits - wanted).abs()
    return {
        "max_abs": difference.max().item(),
        "mean_abs": difference.mean().item(),
        "kl_mean": kl.mean().item(),
        "kl_p99": kl.quantile(0.99).item(),
        "top1": (logits.argmax(-1) == wanted.argmax(-1)).double().mean().item(),
    }


# ---- With torch and transformers -------------------------------------------------------------


def empty_model(shape):
    """transformers' model of that shape on the GPU, its weights not set."""
    import torch
    import transformers

    config = transformers.LlamaConfig(
        vocab_size=shape.vocab, hidden_size=shape.dim, intermediate_size=shape.ffn,
        num_hidden_layers=shape.layers, num_attention_heads=shape.heads, num_key_value_heads=shape.kv_heads,
        head_dim=shape.head_dim, max_position_embeddings=shape.context, rms_norm_eps=shape.norm_eps,
        rope_theta=shape.rope_base, rope_parameters={"rope_type": "default", "rope_theta": shape.rope_base},
        tie_word_embeddings=shape.tied,
    )  # fmt: skip
    with torch.device("meta"):
        model = transformers.LlamaForCausalLM(config)
    model = with_rotation(model.to_empty(device="cuda"))
    if shape.tied:
        model.tie_weights()
    return model.eval()


def with_rotation(model):
    """Makes the rotary frequencies anew, in f32: they are no weights, so they are lost with
    to_empty, and a conversion of the model would round them."""
    rotary = model.model.rotary_emb
    model.model.rotary_emb = type(rotary)(model.config).to("cuda")
    return model


def load_weights(torch, model, shape, kind):
    """The file's weights, what blocks stand for included."""
    parameters = dict(model.named_parameters())
    for tensor in random_model.tensors(shape):
        of = write_gguf.NAMES[kind] if tensor.rows else write_gguf.F32
        values = random_model.file_weight(torch, tensor, of, "cuda")[1]
        with torch.no_grad():
            parameters[tensor.name].copy_(values)


def hf_logits(torch, model, ids):
    with torch.inference_mode():
        return model(torch.tensor([ids], device="cuda"), use_cache=False).logits[0].float()


def our_logits(torch, check, options, shape, count):
    out = options[options.index("--out") + 1]
    Path(out).unlink(missing_ok=True)
    subprocess.run([check, "logits", *options], check=True)
    values = torch.from_file(out, size=count * shape.vocab, dtype=torch.float32)
    return values.reshape(count, shape.vocab)


def run_case(torch, check, folder, device, name):
    size, kind = name.split("-")
    shape = random_model.SIZES[size]
    model_path = folder / f"{name}.gguf"
    if not model_path.exists():
        random_model.write(size, kind, model_path)
    ids = token_ids(PREFILL + DECODE, shape.vocab)
    tokens = folder / "tokens.bin"
    tokens.write_bytes(struct.pack(f"<{len(ids)}i", *ids))

    def ours(*options):
        paths = ["--model", model_path, "--tokens", tokens, "--out", folder / "logits.bin"]
        words = [str(word) for word in (*paths, "--device", device, "--prefill", PREFILL, *options)]
        return our_logits(torch, check, words, shape, len(ids)).clone()

    plain = ours()
    same = {"graphs off": torch.equal(plain, ours("--graphs", 0))}
    if size == "1b":
        same["short slices"] = torch.equal(plain, ours("--prefill", 48))
    reference = empty_model(shape).float()
    load_weights(torch, reference, shape, kind)
    wanted = hf_logits(torch, reference, ids)
    yardstick = figures(torch, hf_logits(torch, with_rotation(reference.bfloat16()), ids), wanted)
    result = figures(torch, plain.to("cuda"), wanted)
    return {
        "case": name,
        "ours": result,
        "transformers_bf16": yardstick,
        "same_bits": same,
        "wrong": verdict(result, yardstick, same),
    }


def main():
    options = argparse.ArgumentParser(description="Our logits against transformers.")
    options.add_argument("check")
    options.add_argument("out", type=Path)
    options.add_argument("folder", type=Path)
    options.add_argument("cases", nargs="*", default=CASES)
    options.add_argument("--device", default="cuda:0")
    given = options.parse_args()
    import torch

    given.folder.mkdir(parents=True, exist_ok=True)
    bad = 0
    for name in given.cases:
        begin = time.monotonic()
        try:
            line = run_case(torch, given.check, given.folder, given.device, name)
        except Exception as error:  # The other cases are worth having.
            line = {"case": name, "wrong": [f"{type(error).__name__}: {error}"[:500]]}
        line["seconds"] = round(time.monotonic() - begin, 1)
        bad += bool(line["wrong"])
        with given.out.open("a") as out:
            out.write(json.dumps(line) + "\n")
        print(json.dumps(line), flush=True)
        torch.cuda.empty_cache()
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
