#include "model/model_config.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>
#include <utility>

#include "base/status_macros.h"

namespace renga {
namespace {

// Wider than any model; they keep every product of two of them inside 64 bits.
constexpr uint64_t kMaxLayers = 4096;
constexpr uint64_t kMaxWidth = 1 << 22;
constexpr uint64_t kMaxHeads = 4096;
constexpr uint64_t kMaxHeadDim = 4096;
constexpr uint64_t kMaxVocab = 1 << 24;
constexpr uint64_t kMaxContext = 1 << 24;
constexpr double kDefaultRopeBase = 10000.0;

// Keys that ReadModelConfig reads.
constexpr std::array kKnownKeys = std::to_array<std::string_view>({
    "block_count",
    "context_length",
    "embedding_length",
    "feed_forward_length",
    "attention.head_count",
    "attention.head_count_kv",
    "attention.key_length",
    "attention.value_length",
    "attention.layer_norm_rms_epsilon",
    "rope.dimension_count",
    "rope.freq_base",
    "rope.scaling.type",
    "rope.scaling.factor",
    "rope.scaling.finetuned",  // Says how the model was trained; changes nothing.
    "vocab_size",
});
// Keys of features that are off at 0.
constexpr std::array kZeroKeys =
    std::to_array<std::string_view>({"expert_count", "expert_used_count"});

// Reads and checks the keys below one architecture's prefix.
class ConfigReader {
 public:
  ConfigReader(const GgufFile& file, std::string architecture)
      : file_(file), prefix_(std::move(architecture) + ".") {}

  Status CheckKeysAreKnown() const {
    for (const std::string_view key : file_.Keys()) {
      if (!key.starts_with(prefix_)) continue;
      const std::string_view name = key.substr(prefix_.size());
      if (std::find(kKnownKeys.begin(), kKnownKeys.end(), name) != kKnownKeys.end()) {
        continue;
      }
      if (std::find(kZeroKeys.begin(), kZeroKeys.end(), name) != kZeroKeys.end()) {
        RENGA_ASSIGN_OR_RETURN(const uint64_t value, file_.GetUint(key));
        if (value == 0) continue;
      }
      return Unsupported(std::string(key), "this feature of the model is not supported");
    }
    return OkStatus();
  }

  // An integer in [1, max].
  Status Read(const char* name, uint64_t max, int32_t& value) const {
    const std::string key = prefix_ + name;
    RENGA_ASSIGN_OR_RETURN(const uint64_t number, file_.GetUint(key));
    if (number < 1 || number > max) {
      return Bad(key, "must be from 1 to " + std::to_string(max) + ", is " +
                          std::to_string(number));
    }
    value = static_cast<int32_t>(number);
    return OkStatus();
  }

  // As Read, but an absent key leaves `value` as it is.
  Status ReadOptional(const char* name, uint64_t max, int32_t& value) const {
    return file_.Has(prefix_ + name) ? Read(name, max, value) : OkStatus();
  }

  // A finite number in (0, max].
  Status ReadPositive(const char* name, double max, double& value) const {
    const std::string key = prefix_ + name;
    RENGA_ASSIGN_OR_RETURN(const double number, file_.GetFloat(key));
    if (!(number > 0.0 && number <= max)) {
      return Bad(key, "must be above 0 and at most " + std::to_string(max) + ", is " +
                          std::to_string(number));
    }
    value = number;
    return OkStatus();
  }

  Status ReadOptionalPositive(const char* name, double max, double& value) const {
    return file_.Has(prefix_ + name) ? ReadPositive(name, max, value) : OkStatus();
  }

  // 1 without scaling.
  Status ReadRopeScale(double& factor) const {
    factor = 1.0;
    const std::string key = prefix_ + "rope.scaling.type";
    std::string_view type = "none";
    if (file_.Has(key)) {
      RENGA_ASSIGN_OR_RETURN(type, file_.GetString(key));
    }
    if (type == "none" && file_.Has(prefix_ + "rope.scaling.factor")) {
      return Unsupported(
          prefix_ + "rope.scaling.factor",
          "there is a factor, but rope.scaling.type does not say how to use it");
    }
    if (type == "none") return OkStatus();
    if (type == "linear") return ReadPositive("rope.scaling.factor", 1e6, factor);
    return Unsupported(key, "only none and linear are supported");
  }

  Status Bad(std::string key, const std::string& what) const {
    return InvalidArgument(std::move(key), file_.name() + ": " + what);
  }
  Status BadKey(const char* name, const std::string& what) const {
    return Bad(prefix_ + name, what);
  }

 private:
  Status Unsupported(std::string key, const std::string& what) const {
    return Unimplemented(file_.name() + ": " + what).WithField(std::move(key));
  }

  const GgufFile& file_;
  const std::string prefix_;
};

Status ReadHeads(const ConfigReader& reader, GraphShape& shape) {
  RENGA_RETURN_IF_ERROR(reader.Read("attention.head_count", kMaxHeads, shape.heads));
  shape.kv_heads = shape.heads;
  RENGA_RETURN_IF_ERROR(
      reader.ReadOptional("attention.head_count_kv", kMaxHeads, shape.kv_heads));
  if (shape.heads % shape.kv_heads != 0) {
    return reader.BadKey("attention.head_count_kv",
                         "the number of heads, " + std::to_string(shape.heads) +
                             ", is no multiple of " + std::to_string(shape.kv_heads));
  }
  if (shape.dim % shape.heads == 0) shape.head_dim = shape.dim / shape.heads;
  RENGA_RETURN_IF_ERROR(
      reader.ReadOptional("attention.key_length", kMaxHeadDim, shape.head_dim));
  if (shape.head_dim == 0) {
    return reader.BadKey("attention.head_count",
                         "the width, " + std::to_string(shape.dim) +
                             ", is no multiple of " + std::to_string(shape.heads) +
                             ", and attention.key_length is missing");
  }
  if (shape.head_dim % 2 != 0 || shape.head_dim > static_cast<int32_t>(kMaxHeadDim)) {
    return reader.BadKey("attention.key_length",
                         "the length of a head must be even and at most " +
                             std::to_string(kMaxHeadDim) + ", is " +
                             std::to_string(shape.head_dim));
  }
  int32_t value_length = shape.head_dim;
  RENGA_RETURN_IF_ERROR(
      reader.ReadOptional("attention.value_length", kMaxHeadDim, value_length));
  if (value_length != shape.head_dim) {
    return reader.BadKey("attention.value_length",
                         "must equal the key length, " + std::to_string(shape.head_dim) +
                             ", is " + std::to_string(value_length));
  }
  return OkStatus();
}

Status ReadRope(const ConfigReader& reader, GraphShape& shape) {
  shape.rope_style = RopeStyle::kAdjacentPairs;
  shape.rope_dims = shape.head_dim;
  RENGA_RETURN_IF_ERROR(
      reader.ReadOptional("rope.dimension_count", kMaxHeadDim, shape.rope_dims));
  if (shape.rope_dims % 2 != 0 || shape.rope_dims > shape.head_dim) {
    return reader.BadKey("rope.dimension_count",
                         "must be even and at most the length of a head, " +
                             std::to_string(shape.head_dim) + ", is " +
                             std::to_string(shape.rope_dims));
  }
  double base = kDefaultRopeBase;
  RENGA_RETURN_IF_ERROR(reader.ReadOptionalPositive("rope.freq_base", 1e12, base));
  double factor = 1.0;
  RENGA_RETURN_IF_ERROR(reader.ReadRopeScale(factor));
  for (int32_t pair = 0; pair < shape.rope_dims / 2; ++pair) {
    shape.rope_inverse_frequencies.push_back(
        std::pow(base, -2.0 * pair / shape.rope_dims) / factor);
  }
  return OkStatus();
}

// The embedding has one row per token; what else speaks of the vocabulary must agree.
Status ReadVocab(const GgufFile& file, const ConfigReader& reader, GraphShape& shape) {
  const GgufTensor* embedding = file.FindTensor("token_embd.weight");
  if (embedding == nullptr) {
    return InvalidArgument("token_embd.weight", file.name() + ": tensor is missing");
  }
  const int64_t rows = embedding->dims.size() == 2 ? embedding->dims[1] : 0;
  if (rows < 1 || rows > static_cast<int64_t>(kMaxVocab)) {
    return InvalidArgument("token_embd.weight",
                           file.name() +
                               ": must have two dimensions, the second from 1 to " +
                               std::to_string(kMaxVocab));
  }
  shape.vocab = static_cast<int32_t>(rows);
  int32_t vocab_size = shape.vocab;
  RENGA_RETURN_IF_ERROR(reader.ReadOptional("vocab_size", kMaxVocab, vocab_size));
  if (vocab_size != shape.vocab) {
    return reader.BadKey("vocab_size", "is " + std::to_string(vocab_size) +
                                           ", but token_embd.weight has " +
                                           std::to_string(shape.vocab) + " rows");
  }
  constexpr const char* kTokens = "tokenizer.ggml.tokens";
  if (!file.Has(kTokens)) return OkStatus();
  RENGA_ASSIGN_OR_RETURN(const uint64_t tokens, file.GetArrayLength(kTokens));
  if (tokens > static_cast<uint64_t>(shape.vocab)) {
    return reader.Bad(kTokens, std::to_string(tokens) +
                                   " tokens, but token_embd.weight has " +
                                   std::to_string(shape.vocab) + " rows");
  }
  return OkStatus();
}

Status CheckNotSplit(const GgufFile& file) {
  constexpr const char* kSplit = "split.count";
  if (!file.Has(kSplit)) return OkStatus();
  RENGA_ASSIGN_OR_RETURN(const uint64_t parts, file.GetUint(kSplit));
  if (parts <= 1) return OkStatus();
  return Unimplemented(file.name() + ": one of " + std::to_string(parts) +
                       " files; models in several files are not supported")
      .WithField(kSplit);
}

}  // namespace

StatusOr<ModelConfig> ReadModelConfig(const GgufFile& file) {
  ModelConfig config;
  RENGA_RETURN_IF_ERROR(CheckNotSplit(file));
  RENGA_ASSIGN_OR_RETURN(const std::string_view architecture,
                         file.GetString("general.architecture"));
  config.architecture = architecture;
  if (architecture != "llama") {
    return Unimplemented(file.name() + ": only the architecture llama is supported")
        .WithField("general.architecture");
  }
  config.name = architecture;
  if (file.Has("general.name")) {
    RENGA_ASSIGN_OR_RETURN(config.name, file.GetString("general.name"));
  }
  const ConfigReader reader(file, config.architecture);
  RENGA_RETURN_IF_ERROR(reader.CheckKeysAreKnown());
  GraphShape& shape = config.graph;
  RENGA_RETURN_IF_ERROR(reader.Read("block_count", kMaxLayers, shape.layers));
  RENGA_RETURN_IF_ERROR(reader.Read("context_length", kMaxContext, shape.context));
  config.context_length = shape.context;
  RENGA_RETURN_IF_ERROR(reader.Read("embedding_length", kMaxWidth, shape.dim));
  RENGA_RETURN_IF_ERROR(reader.Read("feed_forward_length", kMaxWidth, shape.ffn));
  RENGA_RETURN_IF_ERROR(ReadHeads(reader, shape));
  double epsilon = 0.0;
  RENGA_RETURN_IF_ERROR(
      reader.ReadPositive("attention.layer_norm_rms_epsilon", 1.0, epsilon));
  shape.norm_eps = static_cast<float>(epsilon);
  RENGA_RETURN_IF_ERROR(ReadRope(reader, shape));
  RENGA_RETURN_IF_ERROR(ReadVocab(file, reader, shape));
  config.tied_embeddings = file.FindTensor("output.weight") == nullptr;
  return config;
}

}  // namespace renga
