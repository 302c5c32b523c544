// Transformer: the compute graph of the `llama` family, one fused step after another, on
// any Backend.
//
// It holds no activations and decides nothing about devices: it names the weights, plans
// the attention of the batch, and calls the steps in order.
//
// Thread rule: one thread (the engine's) calls Forward.

#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "formats/gguf_file.h"
#include "model/chunk_plan.h"
#include "model/model_config.h"
#include "renga/backend.h"
#include "renga/status.h"

namespace renga {

struct ModelWeights {
  MatrixId embedding{};  // [vocab, dim]
  MatrixId head{};       // [vocab, dim]; the same as `embedding` if tied.
  VectorId output_norm{};
  std::vector<LayerWeights> layers;
};

using LoadProgress = std::function<void(int64_t done, int64_t total)>;

class Transformer {
 public:
  // `backend` is configured for the config's shape with `limits`, and outlives this.
  Transformer(ModelConfig config, ModelWeights weights, Backend& backend,
              const BackendLimits& limits = {});

  // Checks every tensor of the file, then configures the backend and loads the weights.
  // The graph's context is what the model and the pool of `limits` both can hold. The
  // caller creates the KV pool, and may let the file's pages go afterwards.
  // `progress` hears how many of the layers are loaded; may be empty.
  static StatusOr<std::unique_ptr<Transformer>> Load(const GgufFile& file,
                                                     Backend& backend,
                                                     const BackendLimits& limits,
                                                     const LoadProgress& progress = {});

  const ModelConfig& config() const { return config_; }
  Backend& backend() { return backend_; }

  // Computes the batch: keys and values go to the pages, the logits of its logit rows can
  // be sampled or read from the backend until the next call. Allocates nothing here.
  // REQUIRES: the batch is within the limits, its ids inside the vocabulary.
  Status Forward(const StepBatch& batch);

 private:
  Status Layer(int32_t index);

  const ModelConfig config_;
  const ModelWeights weights_;
  Backend& backend_;
  ChunkPlan plan_;
};

}  // namespace renga
