// Finds a model's tensors in its file and checks type and shape of every one of them,
// before any is used.
//
// Thread safety: plain functions and values.

#pragma once

#include <array>
#include <vector>

#include "formats/gguf_file.h"
#include "model/model_config.h"
#include "renga/backend.h"
#include "renga/status.h"

namespace renga {

// One layer as the file has it. Matrices that the backend computes at once are stacked.
struct LayerTensors {
  std::vector<float> attention_norm;        // [dim]
  std::array<TensorView, 3> qkv;            // q [heads * head_dim, dim], k, v [kv, dim]
  std::array<TensorView, 1> attention_out;  // [dim, heads * head_dim]
  std::vector<float> mlp_norm;              // [dim]
  std::array<TensorView, 2> gate_up;        // [ffn, dim] each
  std::array<TensorView, 1> down;           // [dim, ffn]
};

// Views into the file; norms as F32.
struct ModelTensors {
  TensorView embedding;            // [vocab, dim]
  TensorView head;                 // [vocab, dim]; the embedding itself if tied.
  std::vector<float> output_norm;  // [dim]
  std::vector<LayerTensors> layers;
};

// Refuses a missing tensor, a wrong shape, a type that is not supported, and a tensor
// that the graph has no place for; each by the tensor's name.
StatusOr<ModelTensors> FindModelTensors(const GgufFile& file, const ModelConfig& config);

}  // namespace renga
