#include "bench/quality/kl_base_file.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace renga {
namespace {

constexpr char kMagic[] = "_logits_";
constexpr int32_t kMostWindow = 1 << 20;
constexpr int32_t kMostVocab = 1 << 24;
constexpr int64_t kMostTokens = int64_t{1} << 28;
constexpr float kLeastLogProbability = -16.0f;

template <class T>
bool Read(std::ifstream& file, T* to, size_t count) {
  file.read(reinterpret_cast<char*>(to), static_cast<std::streamsize>(count * sizeof(T)));
  return file.good();
}

}  // namespace

StatusOr<KlBaseFile> KlBaseFile::Open(const std::string& path) {
  const auto refuse = [&path](const char* why) {
    return InvalidArgument("base", path + ": " + why);
  };
  KlBaseFile base;
  base.file_.open(path, std::ios::binary);
  char magic[8] = {};
  if (!Read(base.file_, magic, 8)) return refuse("cannot be read");
  if (std::memcmp(magic, kMagic, 8) != 0) return refuse("is no KL base file");
  int32_t sizes[3] = {};
  if (!Read(base.file_, sizes, 3)) return refuse("is cut short");
  base.window_ = sizes[0];
  base.vocab_ = sizes[1];
  base.windows_ = sizes[2];
  if (base.window_ < 4 || base.window_ > kMostWindow || base.vocab_ < 2 ||
      base.vocab_ > kMostVocab || base.windows_ < 1 ||
      int64_t{base.window_} * base.windows_ > kMostTokens) {
    return refuse("has impossible sizes");
  }
  base.tokens_.resize(Size(base.window_) * Size(base.windows_));
  if (!Read(base.file_, base.tokens_.data(), base.tokens_.size())) {
    return refuse("is cut short");
  }
  const bool inside =
      std::all_of(base.tokens_.begin(), base.tokens_.end(),
                  [&base](TokenId token) { return token >= 0 && token < base.vocab_; });
  if (!inside) return refuse("has a token outside the vocabulary");
  return base;
}

Status KlBaseFile::Next(BasePrediction& prediction) {
  prediction.codes.resize((Size(vocab_) + 1) / 2 * 2);
  const bool read = Read(file_, &prediction.scale, 1) &&
                    Read(file_, &prediction.least, 1) &&
                    Read(file_, prediction.codes.data(), prediction.codes.size());
  return read ? OkStatus() : InvalidArgument("base", "the file is cut short");
}

double KlToBase(const BasePrediction& base, std::span<const float> logits) {
  const auto largest =
      static_cast<double>(*std::max_element(logits.begin(), logits.end()));
  double sum = 0;
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit) - largest);
  const double log_sum = largest + std::log(sum);
  double kl = 0;
  for (size_t i = 0; i < logits.size(); ++i) {
    const float expected = base.LogProbability(i);
    if (!(expected > kLeastLogProbability)) continue;
    const auto log_p = static_cast<double>(expected);
    kl += std::exp(log_p) * (log_p - (static_cast<double>(logits[i]) - log_sum));
  }
  return kl;
}

}  // namespace renga
