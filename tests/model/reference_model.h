// Turns a model file into the double-precision reference's own model.
//
// Thread safety: plain functions.

#pragma once

#include <string>

#include "formats/gguf_file.h"
#include "model/model_config.h"
#include "tests/reference/llama.h"

namespace renga::test {

inline reference::Matrix ReferenceMatrix(const GgufFile& file, const std::string& name) {
  const GgufTensor& tensor = *file.FindTensor(name);
  const auto format = [&] {
    switch (tensor.ggml_type) {
      case 0:
        return reference::Format::kF32;
      case 1:
        return reference::Format::kF16;
      case 3:
        return reference::Format::kQ4_1;
      default:
        return reference::Format::kQ8_0;
    }
  }();
  const int64_t rows = tensor.dims.size() > 1 ? tensor.dims[1] : 1;
  return reference::Dequantise(format, tensor.data, rows, tensor.dims[0]);
}

inline reference::Llama ReferenceModel(const GgufFile& file, const ModelConfig& config,
                                       double rope_base) {
  const auto matrix = [&](const std::string& name) {
    return ReferenceMatrix(file, name + ".weight");
  };
  reference::Llama model{.heads = config.graph.heads,
                         .kv_heads = config.graph.kv_heads,
                         .head_dim = config.graph.head_dim,
                         .norm_eps = double{config.graph.norm_eps},
                         .rope_base = rope_base,
                         .rope_dims = config.graph.rope_dims,
                         .embedding = matrix("token_embd"),
                         .head = matrix(config.tied_embeddings ? "token_embd" : "output"),
                         .output_norm = matrix("output_norm").values,
                         .layers = {}};
  for (int32_t i = 0; i < config.graph.layers; ++i) {
    const std::string prefix = "blk." + std::to_string(i) + ".";
    model.layers.push_back({.attention_norm = matrix(prefix + "attn_norm").values,
                            .q = matrix(prefix + "attn_q"),
                            .k = matrix(prefix + "attn_k"),
                            .v = matrix(prefix + "attn_v"),
                            .attention_out = matrix(prefix + "attn_output"),
                            .mlp_norm = matrix(prefix + "ffn_norm").values,
                            .gate = matrix(prefix + "ffn_gate"),
                            .up = matrix(prefix + "ffn_up"),
                            .down = matrix(prefix + "ffn_down")});
  }
  return model;
}

}  // namespace renga::test
