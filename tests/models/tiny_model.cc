#include "tests/models/tiny_model.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <random>
#include <string_view>
#include <utility>

#include "tests/models/tiny_vocab.h"

namespace renga::test {
namespace {

constexpr uint32_t kF32 = 0, kF16 = 1, kQ4_1 = 3, kQ8_0 = 8;
constexpr int32_t kBlock = 32;

// Standard deviations of what comes out of the matrices, for inputs of deviation 1.
constexpr float kQueryScale = 1.4142f;  // Scores of deviation 2 = 1.4142 * 1.4142.
constexpr float kLogitScale = 3.0f;

struct TypeName {
  TinyType type;
  const char* name;
};
constexpr TypeName kTypeNames[] = {{TinyType::kF32, "f32"},
                                   {TinyType::kF16, "f16"},
                                   {TinyType::kQ4_1, "q4_1"},
                                   {TinyType::kQ8_0, "q8_0"},
                                   {TinyType::kMixed, "mixed"}};

// Round to nearest even, for the finite range of a half; smaller values than its
// subnormals become 0.
uint16_t ToHalf(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const auto sign = static_cast<uint16_t>((bits >> 16) & 0x8000u);
  const float magnitude = std::fabs(value);
  if (magnitude < 0x1p-14f) {  // Subnormal: a multiple of 2^-24.
    const float scaled = std::nearbyint(magnitude * 0x1p24f);
    return static_cast<uint16_t>(sign | static_cast<uint16_t>(scaled));
  }
  const uint32_t rounded =
      (bits & 0x7fffffffu) + 0xfffu + ((bits >> 13) & 1u);  // Ties to even.
  const uint32_t half = (rounded >> 13) - (112u << 10);
  return static_cast<uint16_t>(sign | std::min<uint32_t>(half, 0x7bffu));
}

float FromHalf(uint16_t half) {
  const float mantissa = static_cast<float>(half & 0x3ffu);
  const int exponent = (half >> 10) & 0x1f;
  const float magnitude = exponent == 0 ? std::ldexp(mantissa, -24)
                                        : std::ldexp(1024.0f + mantissa, exponent - 25);
  return (half & 0x8000u) != 0 ? -magnitude : magnitude;
}

class ByteSink {
 public:
  template <class T>
  void Put(T value) {
    const auto* raw = reinterpret_cast<const std::byte*>(&value);
    bytes_.insert(bytes_.end(), raw, raw + sizeof value);
  }
  std::vector<std::byte> Take() { return std::move(bytes_); }

 private:
  std::vector<std::byte> bytes_;
};

// d, m, then 16 bytes: value i of the block in the low nibble of byte i, value i + 16 in
// the high one; value = d * code + m.
void PutQ4_1(const float* x, ByteSink& sink) {
  const auto [low, high] = std::minmax_element(x, x + kBlock);
  const uint16_t scale = ToHalf((*high - *low) / 15.0f);
  const uint16_t least = ToHalf(*low);
  const float inverse = FromHalf(scale) > 0.0f ? 1.0f / FromHalf(scale) : 0.0f;
  const auto code = [&](float value) {
    const float steps = std::nearbyint((value - FromHalf(least)) * inverse);
    return static_cast<uint8_t>(std::clamp(steps, 0.0f, 15.0f));
  };
  sink.Put(scale);
  sink.Put(least);
  for (int i = 0; i < kBlock / 2; ++i) {
    sink.Put(static_cast<uint8_t>(code(x[i]) | (code(x[i + kBlock / 2]) << 4)));
  }
}

// d, then 32 signed bytes; value = d * code.
void PutQ8_0(const float* x, ByteSink& sink) {
  float largest = 0.0f;
  for (int i = 0; i < kBlock; ++i) largest = std::max(largest, std::fabs(x[i]));
  const uint16_t scale = ToHalf(largest / 127.0f);
  const float inverse = FromHalf(scale) > 0.0f ? 1.0f / FromHalf(scale) : 0.0f;
  sink.Put(scale);
  for (int i = 0; i < kBlock; ++i) {
    const float steps = std::clamp(std::nearbyint(x[i] * inverse), -127.0f, 127.0f);
    sink.Put(static_cast<int8_t>(steps));
  }
}

std::vector<std::byte> Encode(const std::vector<float>& values, uint32_t type) {
  ByteSink sink;
  const size_t step = type == kF32 || type == kF16 ? 1 : kBlock;
  for (size_t i = 0; i + step <= values.size(); i += step) {
    switch (type) {
      case kF32:
        sink.Put(values[i]);
        break;
      case kF16:
        sink.Put(ToHalf(values[i]));
        break;
      case kQ4_1:
        PutQ4_1(&values[i], sink);
        break;
      default:
        PutQ8_0(&values[i], sink);
        break;
    }
  }
  return sink.Take();
}

class TinyMaker {
 public:
  explicit TinyMaker(const TinyModelOptions& options)
      : options_(options), random_(options.seed) {}

  GgufWriter Make() {
    AddConfig();
    AddTokenizer();
    AddTensors();
    return std::move(writer_);
  }

 private:
  int32_t Rows() const { return std::max(options_.vocab, TinyVocabSize()); }

  void AddConfig() {
    writer_.AddString("general.architecture", "llama");
    writer_.AddString("general.name", options_.name);
    const auto add = [&](const char* key, int32_t value) {
      writer_.AddUint32(std::string("llama.") + key, static_cast<uint32_t>(value));
    };
    add("block_count", options_.layers);
    add("context_length", options_.context);
    add("embedding_length", options_.dim);
    add("feed_forward_length", options_.ffn);
    add("attention.head_count", options_.heads);
    add("attention.head_count_kv", options_.kv_heads);
    add("attention.key_length", options_.head_dim);
    add("attention.value_length", options_.head_dim);
    add("rope.dimension_count", options_.head_dim);
    add("vocab_size", Rows());
    writer_.AddFloat32("llama.rope.freq_base", options_.rope_base);
    writer_.AddFloat32("llama.attention.layer_norm_rms_epsilon", options_.norm_eps);
  }

  void AddTokenizer() {
    const TinyVocab vocab = MakeTinyVocab(options_.vocab);
    writer_.AddString("tokenizer.ggml.model", "gpt2");
    writer_.AddString("tokenizer.ggml.pre", "smollm");
    writer_.AddStrings("tokenizer.ggml.tokens", vocab.tokens);
    writer_.AddInts("tokenizer.ggml.token_type", vocab.types);
    writer_.AddStrings("tokenizer.ggml.merges", vocab.merges);
    writer_.AddUint32("tokenizer.ggml.bos_token_id", kTinyTurnStart);
    writer_.AddUint32("tokenizer.ggml.eos_token_id", kTinyTurnEnd);
    writer_.AddUint32("tokenizer.ggml.unknown_token_id", kTinyEndOfText);
    writer_.AddUint32("tokenizer.ggml.padding_token_id", kTinyTurnEnd);
    writer_.AddBool("tokenizer.ggml.add_bos_token", false);
    writer_.AddBool("tokenizer.ggml.add_space_prefix", false);
    writer_.AddString("tokenizer.chat_template", kTinyChatTemplate);
  }

  uint32_t MatrixType(int32_t layer) const {
    switch (options_.type) {
      case TinyType::kF32:
        return kF32;
      case TinyType::kF16:
        return kF16;
      case TinyType::kQ4_1:
        return kQ4_1;
      case TinyType::kQ8_0:
        return kQ8_0;
      case TinyType::kMixed:
        break;
    }
    constexpr uint32_t kInTurn[] = {kQ4_1, kF16, kQ8_0, kF32};
    return layer < 0 ? kQ8_0 : kInTurn[layer % 4];
  }

  // Uniform, so that the numbers do not depend on a library's normal distribution.
  std::vector<float> Random(int64_t count, float mean, float deviation) {
    std::vector<float> values(static_cast<size_t>(count));
    for (float& value : values) {
      const double unit = static_cast<double>(random_() >> 11) * 0x1p-53;  // [0, 1)
      value = mean + deviation * static_cast<float>((unit - 0.5) * std::sqrt(12.0));
    }
    return values;
  }

  void AddMatrix(const std::string& name, uint32_t type, int32_t rows, int32_t cols,
                 float scale) {
    const float deviation = scale / std::sqrt(static_cast<float>(cols));
    const std::vector<float> values = Random(int64_t{rows} * cols, 0.0f, deviation);
    writer_.AddTensor(name, type,
                      {static_cast<uint64_t>(cols), static_cast<uint64_t>(rows)},
                      Encode(values, type));
  }

  void AddNorm(const std::string& name, uint32_t type) {
    writer_.AddTensor(name, type, {static_cast<uint64_t>(options_.dim)},
                      Encode(Random(options_.dim, 1.0f, 0.1f), type));
  }

  void AddTensors() {
    const std::vector<float> embedding =
        Random(int64_t{Rows()} * options_.dim, 0.0f,
               kLogitScale / std::sqrt(static_cast<float>(options_.dim)));
    const std::vector<uint64_t> dims = {static_cast<uint64_t>(options_.dim),
                                        static_cast<uint64_t>(Rows())};
    const uint32_t type = MatrixType(-1);
    writer_.AddTensor("token_embd.weight", type, dims, Encode(embedding, type));
    AddNorm("output_norm.weight", kF32);
    if (!options_.tied && options_.head_is_embedding) {
      writer_.AddTensor("output.weight", type, dims, Encode(embedding, type));
    } else if (!options_.tied) {
      AddMatrix("output.weight", type, Rows(), options_.dim, kLogitScale);
    }
    for (int32_t layer = 0; layer < options_.layers; ++layer) AddLayer(layer);
  }

  void AddLayer(int32_t layer) {
    const std::string prefix = "blk." + std::to_string(layer) + ".";
    const uint32_t type = MatrixType(layer);
    const uint32_t norm =
        options_.type == TinyType::kMixed && layer % 2 == 1 ? kF16 : kF32;
    const int32_t dim = options_.dim, ffn = options_.ffn;
    const int32_t q_rows = options_.heads * options_.head_dim;
    const int32_t kv_rows = options_.kv_heads * options_.head_dim;
    AddNorm(prefix + "attn_norm.weight", norm);
    AddMatrix(prefix + "attn_q.weight", type, q_rows, dim, kQueryScale);
    AddMatrix(prefix + "attn_k.weight", type, kv_rows, dim, kQueryScale);
    AddMatrix(prefix + "attn_v.weight", type, kv_rows, dim, 1.0f);
    AddMatrix(prefix + "attn_output.weight", type, dim, q_rows, 1.0f);
    AddNorm(prefix + "ffn_norm.weight", norm);
    AddMatrix(prefix + "ffn_gate.weight", type, ffn, dim, 1.5f);
    AddMatrix(prefix + "ffn_up.weight", type, ffn, dim, 1.0f);
    AddMatrix(prefix + "ffn_down.weight", type, dim, ffn, 1.0f);
  }

  const TinyModelOptions options_;
  std::mt19937_64 random_;
  GgufWriter writer_;
};

}  // namespace

GgufWriter TinyModelWriter(const TinyModelOptions& options) {
  return TinyMaker(options).Make();
}

std::vector<std::byte> MakeTinyModel(const TinyModelOptions& options) {
  return TinyModelWriter(options).Finish();
}

bool WriteTinyModel(const TinyModelOptions& options, const std::string& path) {
  return WriteFile(path, MakeTinyModel(options));
}

bool ParseTinyType(const std::string& word, TinyType& type) {
  for (const TypeName& known : kTypeNames) {
    if (word != known.name) continue;
    type = known.type;
    return true;
  }
  return false;
}

std::string TinyTypeName(TinyType type) {
  for (const TypeName& known : kTypeNames) {
    if (known.type == type) return known.name;
  }
  return "?";
}

}  // namespace renga::test
