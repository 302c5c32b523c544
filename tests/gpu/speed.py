"""What the same GPU does in other hands, in the rows of `renga_gpu_check speed`.

    speed.py roofs OUT.csv             copy and matmul of torch: the roofs
    speed.py kernels OUT.csv           torch's matmul and scaled_dot_product_attention at our sizes
    speed.py engine OUT.csv BENCH DEVICE MODEL...   our engine, step_bench on model files, graphs on and off
    speed.py transformers OUT.csv      transformers' generate on a random model of 8B, bf16

Rows: name,us,gb_per_s,gflop_per_s,bytes,flops. Times are CUDA events' around launches that take
turns over buffers larger than the L2 cache, the median of five rounds.
"""

import json
import subprocess
import sys
from pathlib import Path

HEADER = "name,us,gb_per_s,gflop_per_s,bytes,flops"
DIM, FFN, HEADS, KV_HEADS, HEAD_DIM = 4096, 14336, 32, 8, 128


def row(name, seconds, moved=0.0, flops=0.0):
    rates = f"{moved / seconds / 1e9:.6g},{flops / seconds / 1e9:.6g}"
    return f"{name},{seconds * 1e6:.6g},{rates},{moved:.6g},{flops:.6g}"


def engine_rows(text, model, graphs):
    """Rows of what step_bench printed: its last line is JSON."""
    result = json.loads(text.strip().splitlines()[-1])
    rows = []
    for step, figures in result.items():
        if not isinstance(figures, dict):
            continue
        moved = result["bytes_per_token"] if step == "decode batch 1" else 0.0
        name = f"engine/{model}/graphs:{graphs}/{step.replace(' ', '_')}"
        rows.append(row(name, figures["median_ms"] / 1e3, moved))
    return rows


class Out:
    def __init__(self, path):
        self.path = Path(path)
        if not self.path.exists():
            self.line(HEADER)

    def line(self, text):
        with self.path.open("a") as out:
            out.write(text + "\n")
        print(text, flush=True)


# ---- With torch ------------------------------------------------------------------------------


def seconds_of(torch, calls):
    """Of one call; `calls` take turns."""

    def round_of(count):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        for i in range(count):
            calls[i % len(calls)]()
        end.record()
        end.synchronize()
        return start.elapsed_time(end) / 1e3 / count

    round_of(len(calls))
    count = max(4, min(2000, int(0.02 / max(round_of(4), 1e-7))))
    return sorted(round_of(count) for _ in range(5))[2]


def copies(size):
    return int(min(32, (128 << 20) // size + 1))


def roofs(out):
    import torch

    source = torch.randn(1 << 29, device="cuda")  # 2 GiB.
    target = torch.empty_like(source)
    moved = 2.0 * source.numel() * 4
    out.line(row("roof/copy", seconds_of(torch, [lambda: target.copy_(source)]), moved))
    del source, target
    n = 8192
    for dtype in (torch.bfloat16, torch.float16):
        a, b = (torch.randn(n, n, device="cuda", dtype=dtype) for _ in range(2))
        seconds = seconds_of(torch, [lambda a=a, b=b: a @ b])
        out.line(row(f"roof/matmul_{str(dtype)[6:]}", seconds, 6.0 * n * n, 2.0 * n**3))


def matmuls(torch, out):
    for outputs, cols, counts in ((2 * FFN, DIM, (1, 8, 16, 64, 2048)), (DIM, DIM, (1,))):
        weights = [torch.randn(outputs, cols, device="cuda").half() for _ in range(copies(outputs * cols * 2))]
        for rows in counts:
            x = torch.randn(rows, cols, device="cuda").half()
            calls = [lambda w=w, x=x: x @ w.T for w in weights]
            moved = 2.0 * (outputs * cols + rows * (outputs + cols))
            name = f"torch/matmul/f16/{outputs}x{cols}/rows:{rows}"
            out.line(row(name, seconds_of(torch, calls), moved, 2.0 * rows * outputs * cols))


def attention(torch, out):
    attend = torch.nn.functional.scaled_dot_product_attention

    def tensors(batch, heads, tokens):
        return torch.randn(batch, heads, tokens, HEAD_DIM, device="cuda").half()

    for batch, context in ((8, 8192), (1, 8192), (32, 8192), (64, 1024)):
        q, k, v = tensors(batch, HEADS, 1), tensors(batch, KV_HEADS, context), tensors(batch, KV_HEADS, context)
        seconds = seconds_of(torch, [lambda q=q, k=k, v=v: attend(q, k, v, enable_gqa=True)])
        flops = 4.0 * batch * context * HEADS * HEAD_DIM
        name = f"torch/decode_attention/f16/hd:128/batch:{batch}/context:{context}"
        out.line(row(name, seconds, 2.0 * k.numel() * 2, flops))
    for tokens in (2048, 8192):
        q, k, v = tensors(1, HEADS, tokens), tensors(1, KV_HEADS, tokens), tensors(1, KV_HEADS, tokens)
        seconds = seconds_of(torch, [lambda q=q, k=k, v=v: attend(q, k, v, is_causal=True, enable_gqa=True)])
        flops = 2.0 * tokens * (tokens + 1) * HEADS * HEAD_DIM
        moved = 2.0 * (k.numel() * 2 + q.numel() * 2)
        out.line(row(f"torch/prefill_attention/f16/hd:128/tokens:{tokens}", seconds, moved, flops))


def kernels(out):
    import torch

    attention(torch, out)
    matmuls(torch, out)


def engine(out, bench, device, *models):
    for model in models:
        for graphs in (1, 0):
            command = [bench, model, "--device", device, "--graphs", str(graphs), "--prefill", "2048"]
            done = subprocess.run(
                [*command, "--max-batch", "32", "--repetitions", "15"], capture_output=True, text=True
            )
            if done.returncode != 0:
                raise SystemExit(f"{Path(model).stem}: {done.stderr[-500:]}")
            for line in engine_rows(done.stdout, Path(model).stem, graphs):
                out.line(line)


def transformers(out):
    import time

    import parity
    import random_model
    import torch

    model = parity.with_rotation(parity.empty_model(random_model.SIZES["8b"]).bfloat16())
    parity.load_weights(torch, model, random_model.SIZES["8b"], "f16")
    for batch in (1, 8):
        ids = torch.randint(1, 1000, (batch, 128), device="cuda")
        timed = {}
        for tokens in (8, 40):  # The difference is decoding alone.
            torch.cuda.synchronize()
            for _ in range(2):
                begin = time.perf_counter()
                model.generate(
                    ids, attention_mask=torch.ones_like(ids), do_sample=False, min_new_tokens=tokens,
                    max_new_tokens=tokens, pad_token_id=0,
                )  # fmt: skip
                torch.cuda.synchronize()
                timed[tokens] = time.perf_counter() - begin
        out.line(row(f"transformers/8b-bf16/decode_batch_{batch}", (timed[40] - timed[8]) / 32))


def main():
    command, path, *rest = sys.argv[1:]
    {"roofs": roofs, "kernels": kernels, "engine": engine, "transformers": transformers}[command](Out(path), *rest)


if __name__ == "__main__":
    main()
