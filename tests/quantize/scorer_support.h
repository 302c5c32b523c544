// Opens tiny models for the tests of ModelScorer and of what stands on it.

#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>

#include "backend/cpu_backend.h"
#include "quantize/model_scorer.h"
#include "tests/models/tiny_model.h"

namespace renga::test {

inline std::unique_ptr<ModelScorer> OpenScorer(const TinyModelOptions& options,
                                               const std::string& path, int32_t window,
                                               KvDtype dtype = KvDtype::kF16) {
  EXPECT_TRUE(WriteTinyModel(options, path));
  auto backend = MakeCpuBackend({.threads = 1});
  auto scorer = ModelScorer::Open(path, std::move(*backend), dtype, window);
  EXPECT_TRUE(scorer.ok()) << scorer.status().ToString();
  return std::move(*scorer);
}

}  // namespace renga::test
