// make_tiny_model OUT.gguf [--type f32|f16|q4_1|q8_0|mixed] [--seed N] [--layers N]
//   [--dim N] [--heads N] [--kv_heads N] [--head_dim N] [--ffn N] [--vocab N]
//   [--context N] [--untied] [--name TEXT]
//
// Writes a tiny random model for tests that are not in C++.

#include <cstdio>
#include <cstdlib>
#include <string>

#include "tests/models/tiny_model.h"

namespace {

using renga::test::TinyModelOptions;

// The number option of that name, or nullptr.
int32_t* FindNumber(TinyModelOptions& options, const std::string& flag) {
  if (flag == "--layers") return &options.layers;
  if (flag == "--dim") return &options.dim;
  if (flag == "--heads") return &options.heads;
  if (flag == "--kv_heads") return &options.kv_heads;
  if (flag == "--head_dim") return &options.head_dim;
  if (flag == "--ffn") return &options.ffn;
  if (flag == "--vocab") return &options.vocab;
  if (flag == "--context") return &options.context;
  return nullptr;
}

bool Apply(TinyModelOptions& options, const std::string& flag, const char* value) {
  if (flag == "--type") return ParseTinyType(value, options.type);
  if (flag == "--name") {
    options.name = value;
    return true;
  }
  if (flag == "--seed") {
    options.seed = std::strtoull(value, nullptr, 10);
    return true;
  }
  int32_t* number = FindNumber(options, flag);
  if (number == nullptr) return false;
  *number = static_cast<int32_t>(std::strtol(value, nullptr, 10));
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  TinyModelOptions options;
  std::string path;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--untied") {
      options.tied = false;
    } else if (word.starts_with("--")) {
      if (i + 1 >= argc || !Apply(options, word, argv[++i])) {
        std::fprintf(stderr, "bad option %s\n", word.c_str());
        return 2;
      }
    } else {
      path = word;
    }
  }
  if (path.empty()) {
    std::fprintf(stderr,
                 "usage: make_tiny_model OUT.gguf [--type q4_1] [--seed 1] ...\n");
    return 2;
  }
  if (WriteTinyModel(options, path)) return 0;
  std::fprintf(stderr, "cannot write %s\n", path.c_str());
  return 1;
}
