// Tiny random models: whole GGUF files of the `llama` architecture with a tokenizer and a
// chat template, in a few dozen kilobytes.
//
// The weights are random but scaled so that nothing is flat: attention scores have a
// standard deviation of about 2, logits of about 3. Equal options give equal bytes.
//
// Thread safety: plain functions.

#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "tests/models/gguf_writer.h"

namespace renga::test {

enum class TinyType {
  kF32,
  kF16,
  kQ4_1,
  kQ8_0,
  kMixed,  // Embedding Q8_0; layers Q4_1, F16, Q8_0, F32 in turn; norms F32 and F16.
};

struct TinyModelOptions {
  uint64_t seed = 1;
  TinyType type = TinyType::kF32;
  bool tied = true;
  // The head of an untied model is a copy of the embedding (else other random numbers).
  bool head_is_embedding = false;
  int32_t layers = 2;
  int32_t dim =
      64;  // A multiple of 32 for quantised types, as are ffn and heads * head_dim.
  int32_t heads = 4;
  int32_t kv_heads = 2;
  int32_t head_dim = 16;
  int32_t ffn = 96;
  int32_t vocab = 0;  // Rows of the embedding; 0: what the vocabulary has, 300.
  int32_t context = 1024;
  float rope_base = 10000.0f;
  float norm_eps = 1e-5f;
  std::string name = "tiny";
};

// All keys and tensors, for tests that change some before they call Finish.
GgufWriter TinyModelWriter(const TinyModelOptions& options);

std::vector<std::byte> MakeTinyModel(const TinyModelOptions& options);

// Writes the model to `path`; false if that failed.
bool WriteTinyModel(const TinyModelOptions& options, const std::string& path);

// "f32", "f16", "q4_1", "q8_0", "mixed"; false for any other word.
bool ParseTinyType(const std::string& word, TinyType& type);
std::string TinyTypeName(TinyType type);

}  // namespace renga::test
