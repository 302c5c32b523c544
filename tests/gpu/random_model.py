"""Random models of the `llama` architecture, made where they are needed: as a GGUF file for renga,
and as tensors for transformers, from one seed.

    random_model.py SIZE TYPE OUT.gguf        SIZE: tiny, 1b, 8b; TYPE: f16, q8_0, q4_1

Weights are scaled so that nothing is flat: with the usual initialisation attention is nearly
uniform, so that a mistake in it is invisible, and greedy tokens flip on noise. Here attention
scores have a deviation of about 2 and logits one of about 3.
"""

import math
import sys
from dataclasses import dataclass

import write_gguf


@dataclass(frozen=True)
class Shape:
    layers: int
    dim: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    vocab: int
    tied: bool
    context: int = 8192
    rope_base: float = 500000.0
    norm_eps: float = 1e-5


SIZES = {
    "tiny": Shape(2, 64, 4, 2, 16, 96, 320, False, 1024),
    "1b": Shape(16, 2048, 32, 8, 64, 8192, 128256, True),
    "8b": Shape(32, 4096, 32, 8, 128, 14336, 128256, False),
}


@dataclass(frozen=True)
class Tensor:
    """`rotated`: rows are heads whose channels GGUF keeps in pairs, transformers in halves."""

    gguf: str
    name: str  # In transformers.
    rows: int  # 0: a vector.
    cols: int
    scale: float  # Deviation of what comes out for inputs of deviation 1.
    rotated: int = 0  # Heads.

    @property
    def dims(self):
        return [self.cols, self.rows] if self.rows else [self.cols]

    @property
    def deviation(self):
        return self.scale / math.sqrt(self.cols)


def tensors(shape):
    """All tensors, in the order of the file."""
    logits = 3.0
    embedding = Tensor("token_embd.weight", "model.embed_tokens.weight", shape.vocab, shape.dim, math.sqrt(shape.dim))
    if shape.tied:
        embedding = Tensor(embedding.gguf, embedding.name, shape.vocab, shape.dim, logits)
    yield embedding
    yield Tensor("output_norm.weight", "model.norm.weight", 0, shape.dim, 0)
    if not shape.tied:
        yield Tensor("output.weight", "lm_head.weight", shape.vocab, shape.dim, logits)
    q_rows, kv_rows = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    for i in range(shape.layers):
        ours, theirs = f"blk.{i}.", f"model.layers.{i}."
        yield Tensor(ours + "attn_norm.weight", theirs + "input_layernorm.weight", 0, shape.dim, 0)
        attention = theirs + "self_attn."
        yield Tensor(ours + "attn_q.weight", attention + "q_proj.weight", q_rows, shape.dim, 1.4142, shape.heads)
        yield Tensor(ours + "attn_k.weight", attention + "k_proj.weight", kv_rows, shape.dim, 1.4142, shape.kv_heads)
        yield Tensor(ours + "attn_v.weight", attention + "v_proj.weight", kv_rows, shape.dim, 1.0)
        yield Tensor(ours + "attn_output.weight", attention + "o_proj.weight", shape.dim, q_rows, 0.5)
        yield Tensor(ours + "ffn_norm.weight", theirs + "post_attention_layernorm.weight", 0, shape.dim, 0)
        yield Tensor(ours + "ffn_gate.weight", theirs + "mlp.gate_proj.weight", shape.ffn, shape.dim, 1.5)
        yield Tensor(ours + "ffn_up.weight", theirs + "mlp.up_proj.weight", shape.ffn, shape.dim, 1.0)
        yield Tensor(ours + "ffn_down.weight", theirs + "mlp.down_proj.weight", shape.dim, shape.ffn, 0.5)


def writer_of(shape, kind, produce):
    """The file of a model. `produce(tensor, type)` gives a tensor's bytes in that type."""
    writer = write_gguf.GgufWriter()
    writer.string("general.architecture", "llama")
    writer.string("general.name", "random")
    for key, value in {
        "block_count": shape.layers,
        "context_length": shape.context,
        "embedding_length": shape.dim,
        "feed_forward_length": shape.ffn,
        "attention.head_count": shape.heads,
        "attention.head_count_kv": shape.kv_heads,
        "attention.key_length": shape.head_dim,
        "attention.value_length": shape.head_dim,
        "rope.dimension_count": shape.head_dim,
        "vocab_size": shape.vocab,
    }.items():
        writer.uint32(f"llama.{key}", value)
    writer.float32("llama.attention.layer_norm_rms_epsilon", shape.norm_eps)
    writer.float32("llama.rope.freq_base", shape.rope_base)
    for tensor in tensors(shape):
        of = write_gguf.NAMES[kind] if tensor.rows else write_gguf.F32
        writer.tensor(tensor.gguf, of, tensor.dims, lambda tensor=tensor, of=of: produce(tensor, of))
    return writer


# ---- With torch ------------------------------------------------------------------------------


def random_weight(torch, tensor, device):
    """The tensor in transformers' order: f16 values as f32, the same for the same name."""
    generator = torch.Generator(device=device)
    generator.manual_seed(sum((i + 1) * ord(c) for i, c in enumerate(tensor.gguf)))
    if not tensor.rows:
        noise = torch.randn(tensor.cols, generator=generator, device=device)
        return (1.0 + 0.1 * noise).half().float()
    noise = torch.randn(tensor.rows, tensor.cols, generator=generator, device=device)
    return noise.mul_(tensor.deviation).half().float()


def quantised(torch, weight, of):
    """(the blocks as bytes, what they stand for as f32); rows are cut into blocks of 32."""
    blocks = weight.reshape(-1, 32)
    if of == write_gguf.Q8_0:
        scale = (blocks.abs().amax(1, keepdim=True) / 127).half()
        codes = torch.round(blocks / scale.float().clamp_min(1e-12)).clamp(-127, 127).to(torch.int8)
        data = torch.cat([scale.view(torch.uint8), codes.view(torch.uint8)], 1)
        return data, (codes.float() * scale.float()).reshape(weight.shape)
    least = blocks.amin(1, keepdim=True).half()
    scale = ((blocks.amax(1, keepdim=True) - least.float()) / 15).half()
    codes = torch.round((blocks - least.float()) / scale.float().clamp_min(1e-12)).clamp(0, 15).to(torch.uint8)
    packed = codes[:, :16] | (codes[:, 16:] << 4)
    data = torch.cat([scale.view(torch.uint8), least.view(torch.uint8), packed], 1)
    return data, (codes.float() * scale.float() + least.float()).reshape(weight.shape)


def pairs_of_halves(weight, heads):
    """Rows (i, i + hd / 2) of each head become neighbours: GGUF's order."""
    rows, cols = weight.shape
    return weight.reshape(heads, 2, rows // heads // 2, cols).transpose(1, 2).reshape(rows, cols).contiguous()


def halves_of_pairs(weight, heads):
    rows, cols = weight.shape
    return weight.reshape(heads, rows // heads // 2, 2, cols).transpose(1, 2).reshape(rows, cols).contiguous()


def file_weight(torch, tensor, of, device):
    """(bytes of the file, f32 values in transformers' order)."""
    weight = random_weight(torch, tensor, device)
    if tensor.rotated:
        weight = pairs_of_halves(weight, tensor.rotated)
    if of == write_gguf.F32:
        data, values = weight, weight
    elif of == write_gguf.F16:
        data, values = weight.half(), weight
    else:
        data, values = quantised(torch, weight, of)
    if tensor.rotated:
        values = halves_of_pairs(values, tensor.rotated)
    return data.contiguous().view(torch.uint8).flatten(), values


def write(size, kind, path):
    import torch

    device = "cuda" if torch.cuda.is_available() else "cpu"

    def produce(tensor, of):
        return file_weight(torch, tensor, of, device)[0].cpu().numpy()

    writer_of(SIZES[size], kind, produce).write(path)


if __name__ == "__main__":
    write(*sys.argv[1:4])
