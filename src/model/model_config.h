// ModelConfig: the hyper-parameters of a model, read from its file and checked once.
//
// Everything that the graph multiplies or divides by is in range afterwards, so no later
// code checks it again. A key that is unknown under the architecture's prefix is refused:
// it may change what the model computes.
//
// Defaults of optional keys of the `llama` architecture:
//   attention.head_count_kv   attention.head_count
//   attention.key_length, attention.value_length   embedding_length /
//   attention.head_count rope.dimension_count      the head's length rope.freq_base 10000
//   rope.scaling.type         none (`linear` is supported, with rope.scaling.factor)
//   vocab_size                rows of token_embd.weight
//   general.name              the architecture
//
// Thread safety: a plain value.

#pragma once

#include <cstdint>
#include <string>

#include "formats/gguf_file.h"
#include "renga/backend.h"
#include "renga/status.h"

namespace renga {

struct ModelConfig {
  std::string architecture;
  std::string name;
  GraphShape graph;
  int64_t context_length = 0;  // Tokens of prompt and answer that the model was made for.
  // The head is the embedding matrix: the file has no output.weight. GGUF has no key that
  // says so; an output.weight that is present is used, whatever it holds.
  bool tied_embeddings = false;
};

// Errors name the key as the file spells it.
StatusOr<ModelConfig> ReadModelConfig(const GgufFile& file);

}  // namespace renga
