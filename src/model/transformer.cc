#include "model/transformer.h"

#include <algorithm>
#include <utility>

#include "base/status_macros.h"
#include "model/weights.h"

namespace renga {
namespace {

StatusOr<LayerWeights> LoadLayer(const LayerTensors& tensors, Backend& backend) {
  LayerWeights weights;
  RENGA_ASSIGN_OR_RETURN(weights.attention_norm,
                         backend.LoadVector(tensors.attention_norm));
  RENGA_ASSIGN_OR_RETURN(weights.qkv, backend.LoadMatrix(tensors.qkv));
  RENGA_ASSIGN_OR_RETURN(weights.attention_out,
                         backend.LoadMatrix(tensors.attention_out));
  RENGA_ASSIGN_OR_RETURN(weights.mlp_norm, backend.LoadVector(tensors.mlp_norm));
  RENGA_ASSIGN_OR_RETURN(weights.gate_up, backend.LoadMatrix(tensors.gate_up));
  RENGA_ASSIGN_OR_RETURN(weights.down, backend.LoadMatrix(tensors.down));
  return weights;
}

StatusOr<ModelWeights> LoadWeights(const ModelTensors& tensors, bool tied,
                                   Backend& backend, const LoadProgress& progress) {
  ModelWeights weights;
  RENGA_ASSIGN_OR_RETURN(weights.embedding, backend.LoadMatrix({&tensors.embedding, 1}));
  weights.head = weights.embedding;
  if (!tied) {
    RENGA_ASSIGN_OR_RETURN(weights.head, backend.LoadMatrix({&tensors.head, 1}));
  }
  RENGA_ASSIGN_OR_RETURN(weights.output_norm, backend.LoadVector(tensors.output_norm));
  for (const LayerTensors& layer : tensors.layers) {
    RENGA_ASSIGN_OR_RETURN(LayerWeights loaded, LoadLayer(layer, backend));
    weights.layers.push_back(loaded);
    if (progress) {
      progress(static_cast<int64_t>(weights.layers.size()),
               static_cast<int64_t>(tensors.layers.size()));
    }
  }
  return weights;
}

}  // namespace

Transformer::Transformer(ModelConfig config, ModelWeights weights, Backend& backend,
                         const BackendLimits& limits)
    : config_(std::move(config)),
      weights_(std::move(weights)),
      backend_(backend),
      plan_(config_.graph.kv_heads, limits) {}

StatusOr<std::unique_ptr<Transformer>> Transformer::Load(const GgufFile& file,
                                                         Backend& backend,
                                                         const BackendLimits& limits,
                                                         const LoadProgress& progress) {
  RENGA_ASSIGN_OR_RETURN(ModelConfig config, ReadModelConfig(file));
  RENGA_ASSIGN_OR_RETURN(const ModelTensors tensors, FindModelTensors(file, config));
  // Rope tables beyond what the pool can hold would be memory for nothing.
  if (limits.max_pages > 0) {
    config.graph.context = static_cast<int32_t>(
        std::min<int64_t>(config.context_length, limits.max_pages * kPageTokens));
  }
  RENGA_RETURN_IF_ERROR(backend.Configure(config.graph, limits));
  RENGA_ASSIGN_OR_RETURN(ModelWeights weights,
                         LoadWeights(tensors, config.tied_embeddings, backend, progress));
  return std::make_unique<Transformer>(std::move(config), std::move(weights), backend,
                                       limits);
}

Status Transformer::Forward(const StepBatch& batch) {
  const AttendPlan plan{.items = plan_.Build(batch.sequences)};
  RENGA_RETURN_IF_ERROR(backend_.BeginStep(batch, plan));
  RENGA_RETURN_IF_ERROR(backend_.Embed(weights_.embedding));
  for (int32_t layer = 0; layer < config_.graph.layers; ++layer) {
    RENGA_RETURN_IF_ERROR(Layer(layer));
  }
  if (batch.logit_rows.empty()) return OkStatus();
  return backend_.Head(weights_.output_norm, weights_.head);
}

Status Transformer::Layer(int32_t index) {
  const LayerWeights& weights = weights_.layers[static_cast<size_t>(index)];
  RENGA_RETURN_IF_ERROR(backend_.NormQkvRopeAppend(index, weights));
  RENGA_RETURN_IF_ERROR(backend_.Attend(index));
  RENGA_RETURN_IF_ERROR(backend_.OutProjAdd(weights));
  return backend_.Mlp(weights);
}

}  // namespace renga
