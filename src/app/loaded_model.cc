#include "app/loaded_model.h"

#include <algorithm>
#include <limits>
#include <span>
#include <string>
#include <utility>

#include "app/model_name.h"
#include "backend/kv_pages.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "text/load_tokenizer.h"

namespace renga {
namespace {

KvDtype DtypeOf(const KvSettings& settings) {
  for (const KvDtype dtype : {KvDtype::kF32, KvDtype::kBf16, KvDtype::kInt8}) {
    if (settings.dtype == KvDtypeName(dtype)) return dtype;
  }
  return KvDtype::kF16;
}

KvGeometry GeometryOf(const GraphShape& graph, const KvSettings& settings) {
  return {.layers = graph.layers,
          .kv_heads = graph.kv_heads,
          .head_dim = graph.head_dim,
          .dtype = DtypeOf(settings)};
}

// Pages that fit `pool_bytes` beside the open pages of so many sequences; at least one
// must.
StatusOr<int64_t> PagesOf(const KvGeometry& geometry, int64_t pool_bytes,
                          int64_t sequences) {
  RENGA_RETURN_IF_ERROR(CheckKvGeometry(geometry));
  const int64_t page_bytes = KvPageBytes(geometry);
  const int64_t open_bytes = KvOpenPageBytes(geometry) * sequences;
  const int64_t pages = std::min<int64_t>((pool_bytes - open_bytes) / page_bytes,
                                          std::numeric_limits<PageId>::max());
  if (pages >= 1) return pages;
  std::string why = "is " + std::to_string(pool_bytes) +
                    "; one page of 64 tokens of this model takes " +
                    std::to_string(page_bytes);
  if (open_bytes > 0) {
    why += ", and the open pages of " + std::to_string(sequences) +
           " sequences (scheduler.max_sequences) take " + std::to_string(open_bytes);
  }
  return InvalidArgument("kv.pool_bytes", why);
}

}  // namespace

StatusOr<std::unique_ptr<LoadedModel>> LoadedModel::Open(const Config& config) {
  std::unique_ptr<LoadedModel> model(new LoadedModel());
  RENGA_RETURN_IF_ERROR(model->OpenFile(config.model));
  RENGA_RETURN_IF_ERROR(model->CheckSettings(config));
  return model;
}

Status LoadedModel::OpenFile(const ModelSettings& settings) {
  StatusOr<std::unique_ptr<GgufFile>> opened = GgufFile::Open(settings.path);
  if (!opened.ok()) {
    // For the operator alone, so with the whole path and the setting's name.
    const Status& why = opened.status();
    return Status(why.code(), settings.path + ": " + why.message())
        .WithField("model.path");
  }
  file_ = *std::move(opened);
  RENGA_ASSIGN_OR_RETURN(tokenizer_, LoadTokenizer(*file_));
  no_template_reason_ = "the model file has none";
  StatusOr<std::unique_ptr<ChatTemplate>> parsed = LoadChatTemplate(*file_);
  if (parsed.ok()) {
    chat_template_ = *std::move(parsed);
  } else {
    // The model can still complete text; the reason is the operator's to read.
    no_template_reason_ = "the one of the model file does not parse";
    LogWarn("chat_template_refused", {{"reason", parsed.status().ToString()}});
  }
  return OkStatus();
}

Status LoadedModel::CheckSettings(const Config& config) {
  RENGA_ASSIGN_OR_RETURN(model_, ReadModelConfig(*file_));
  const int64_t wanted = config.model.context;
  if (wanted > model_.context_length) {
    return InvalidArgument("model.context", "is " + std::to_string(wanted) +
                                                "; the model was made for " +
                                                std::to_string(model_.context_length));
  }
  context_ = wanted > 0 ? wanted : model_.context_length;
  if (context_ < 2) {
    return InvalidArgument(
        "model.context",
        "is " + std::to_string(context_) + "; a prompt and an answer need 2 at least");
  }
  if (tokenizer_->vocab_size() != model_.graph.vocab) {
    return InvalidArgument("tokenizer.ggml.tokens",
                           "has " + std::to_string(tokenizer_->vocab_size()) +
                               " entries; the model has " +
                               std::to_string(model_.graph.vocab));
  }
  geometry_ = GeometryOf(model_.graph, config.kv);
  RENGA_ASSIGN_OR_RETURN(
      pages_, PagesOf(geometry_, config.kv.pool_bytes, config.scheduler.max_sequences));
  name_ = ServedModelName(config.model, model_.name);
  device_ = config.device;
  return OkStatus();
}

Status LoadedModel::MakeDevice(const BackendFactory& factory) {
  RENGA_ASSIGN_OR_RETURN(backend_, factory(device_));
  return backend_->CheckKv(geometry_);
}

Status LoadedModel::LoadWeights(const BackendLimits& limits,
                                const LoadProgress& progress) {
  StatusOr<std::unique_ptr<Transformer>> loaded =
      Transformer::Load(*file_, *backend_, limits, progress);
  if (!loaded.ok()) return WithSizes(loaded.status());
  transformer_ = *std::move(loaded);
  if (Status status = backend_->CreateKvPool(geometry_, pages_); !status.ok()) {
    return WithSizes(status);
  }
  file_->ReleasePages();
  return OkStatus();
}

// A device that is full knows what the last allocation lacked, not what all of them need.
Status LoadedModel::WithSizes(const Status& why) const {
  if (why.code() != StatusCode::kResourceExhausted) return why;
  int64_t weights = 0;
  for (const GgufTensor& tensor : file_->tensors()) {
    weights += static_cast<int64_t>(tensor.bytes);
  }
  const int64_t pool = pages_ * KvPageBytes(geometry_);
  std::string message = why.message() + "; all weights take about " +
                        std::to_string(weights) + " bytes, the KV pool (kv.pool_bytes) " +
                        std::to_string(pool);
  if (const int64_t has = backend_->info().gpu_memory_bytes; has > 0) {
    message += ", and the GPU has " + std::to_string(has);
  }
  return Status(why.code(), message).WithField(why.field());
}

ModelInfo LoadedModel::Describe() const {
  const std::span<const TokenId> ends = tokenizer_->end_token_ids();
  return {.name = name_,
          .architecture = model_.architecture,
          .context_length = context_,
          .vocab_size = tokenizer_->vocab_size(),
          .has_chat_template = chat_template_ != nullptr,
          .backend = backend_->info().name,
          .numerics_id = backend_->info().numerics_id,
          .end_token_ids = {ends.begin(), ends.end()},
          .bos_token_id = tokenizer_->bos_token_id()};
}

}  // namespace renga
