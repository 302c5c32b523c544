// Which type each tensor of a model gets.
//
// Matrices (two dimensions or more, named *.weight) get the wanted type, the embedding
// and output tables (token_embd, output) their own. Where a row is no whole number of
// blocks: Q8_0 if it is whole blocks of 32, else F16. Vectors of floats (norms, biases)
// become F32. Anything else keeps its type.
//
// Thread safety: pure functions.

#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "formats/gguf_file.h"
#include "renga/status.h"

namespace renga {

struct WantedTypes {
  uint32_t matrix = 0;     // Of the format, one that block_codec.h can write.
  uint32_t embedding = 0;  // Of token_embd.weight and output.weight.
};

struct TensorPlan {
  uint32_t type = 0;
  bool fallback = false;  // The wanted type does not divide its rows.
};

// The type of the tables where nothing else is said: Q8_0 for the 4-bit types.
uint32_t DefaultEmbeddingType(uint32_t matrix_type);

TensorPlan PlanTensor(const GgufTensor& tensor, const WantedTypes& wanted);

// One plan for each tensor of the file. Refuses, by name: a tensor whose type cannot be
// read but would have to be, one that is too wide, and a name that is no plain text.
StatusOr<std::vector<TensorPlan>> PlanTensors(const GgufFile& file,
                                              const WantedTypes& wanted);

// What general.file_type says of a file whose matrices are of this type.
uint32_t FileTypeOf(uint32_t matrix_type);

}  // namespace renga
