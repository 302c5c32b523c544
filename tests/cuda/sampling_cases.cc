#include "tests/cuda/sampling_cases.h"

#include <cstddef>
#include <limits>

#include "kernels/block_format.h"
#include "kernels/cpu/cpu_ops.h"
#include "kernels/sampling.h"

namespace renga::test {
namespace {

constexpr int32_t kNotDrawn = -77;
constexpr float kInfinity = std::numeric_limits<float>::infinity();

float LogitOf(LogitKind kind, float normal, uint32_t random) {
  switch (kind) {
    case LogitKind::kWide:
      return normal * 3.0f + (random % 997 == 0 ? 12.0f : 0.0f);
    case LogitKind::kTies:
      return std::round(normal * 2.0f);
    case LogitKind::kMostlyOut:
      return random % 4 == 0 ? normal : -kInfinity;
    case LogitKind::kHugeRange:
      return random % 3 != 0 ? normal : random % 2 == 0 ? 3.4e38f : -3.4e38f;
    case LogitKind::kEqual:
      return -2.5f;
    case LogitKind::kClose:
      return BitsFloat(FloatBits(17.0f) + random % 500);
    case LogitKind::kTwoLevels:
      return random % 3 == 0 ? -1.0f : random % 2 == 0 ? 0.0f : -0.0f;
    case LogitKind::kNormal:
    case LogitKind::kUnusable:
      break;
  }
  return normal;
}

// Every combination of what narrows a draw, with every temperature now and then.
cuda::DrawSpec SpecOf(uint32_t index, int64_t vocab, std::mt19937& random) {
  static constexpr float kTemperatures[] = {1.0f, 0.7f,  1.3f,  0.05f,
                                            0.0f, 1e-7f, 25.0f, 1e20f};
  static constexpr float kTopP[] = {0.9f, 0.5f, 0.999f, 0.01f, 0.0f};
  static constexpr float kMinP[] = {0.05f, 0.3f, 1e-6f, 1.0f};
  const int32_t top_k[] = {1,
                           2,
                           40,
                           static_cast<int32_t>(vocab / 2),
                           static_cast<int32_t>(vocab - 1),
                           static_cast<int32_t>(vocab + 5)};
  cuda::DrawSpec spec;
  spec.temperature = kTemperatures[random() % 4 == 0 ? random() % 8 : 0];
  if ((index & 1) != 0) spec.top_k = top_k[random() % 6];
  if ((index & 2) != 0) spec.top_p = kTopP[random() % 5];
  if ((index & 4) != 0) spec.min_p = kMinP[random() % 4];
  spec.choice = static_cast<uint32_t>(random() % 3);
  spec.token_index = static_cast<uint32_t>(random());
  spec.seed = uint64_t{random()} << 32 | random();
  return spec;
}

// Rows of all kinds, each with every combination of filters `times` times.
CheckResult CheckVocab(Device& device, int64_t vocab, int times, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<float> logits;
  std::vector<cuda::DrawSpec> specs;
  for (int kind = 0; kind < kLogitKinds; ++kind) {
    const auto row =
        LogitsOf(static_cast<LogitKind>(kind), vocab, seed + static_cast<uint32_t>(kind));
    logits.insert(logits.end(), row.begin(), row.end());
    for (int i = 0; i < 8 * times; ++i) {
      specs.push_back(SpecOf(static_cast<uint32_t>(i), vocab, random));
      specs.back().logit_row = kind;
    }
  }
  std::shuffle(specs.begin(), specs.end(), random);
  const int32_t count = static_cast<int32_t>(specs.size()) - 2;
  const Draws draws = DrawBoth(device, logits, vocab, specs, count);
  CheckResult result{.name = "draw/vocab:" + std::to_string(vocab) +
                             "/specs:" + std::to_string(count)};
  for (size_t i = 0; i < specs.size(); ++i) {
    if (draws.got[i] == draws.expected[i]) continue;
    if (result.error++ > 0) continue;
    const cuda::DrawSpec& s = specs[i];
    char text[240];
    std::snprintf(
        text, sizeof text,
        "spec %zu: row %d temperature %g top_k %d top_p %g min_p %g: %d, not %d", i,
        s.logit_row, static_cast<double>(s.temperature), s.top_k,
        static_cast<double>(s.top_p), static_cast<double>(s.min_p), draws.got[i],
        draws.expected[i]);
    result.detail = text;
  }
  result.ok = result.error == 0;
  return result;
}

CheckResult Compared(std::string name, const Draws& draws) {
  CheckResult result{.name = std::move(name)};
  for (size_t i = 0; i < draws.got.size(); ++i) {
    if (draws.got[i] == draws.expected[i] || result.error++ > 0) continue;
    result.detail = "spec " + std::to_string(i) + ": " + std::to_string(draws.got[i]) +
                    ", not " + std::to_string(draws.expected[i]);
  }
  result.ok = result.error == 0;
  return result;
}

// Rows of one best token and many of one weight, with a min_p that is just this weight or
// the next one above it: in the first case nearly all of the mass is theirs, in the
// second none. So a weight that is off by one shows.
CheckResult CheckWeightBits(Device& device) {
  constexpr int64_t kVocab = 700;
  constexpr int32_t kRows = 200;
  std::vector<float> logits;
  std::vector<cuda::DrawSpec> specs;
  for (int32_t row = 0; row < kRows; ++row) {
    const float depth = 0.02f * static_cast<float>(row) + 0.013f;
    std::vector<float> x(kVocab, -depth);
    x[static_cast<size_t>(row)] = 0.0f;
    logits.insert(logits.end(), x.begin(), x.end());
    uint32_t weight = 0;
    FindCpuOps("portable")->sample_weights(&x[kRows], 1, 0.0f, 1.44269504f, &weight);
    const float share = static_cast<float>(weight) / kSampleWeightOne;
    for (const float min_p : {share, std::nextafter(share, 2.0f)}) {
      specs.push_back({.logit_row = row,
                       .temperature = 1.0f,
                       .min_p = min_p,
                       .token_index = static_cast<uint32_t>(row)});
    }
  }
  return Compared("draw/weight_bits", DrawBoth(device, logits, kVocab, specs, 2 * kRows));
}

// Just as many logits as top_k wants lie close to the best; those behind them weigh
// something too, and must not be drawn.
CheckResult CheckFullBound(Device& device, int32_t top_k, int64_t vocab) {
  std::vector<float> logits(static_cast<size_t>(vocab), -4.5f);
  for (int64_t i = 0; i < top_k; ++i) {
    logits[static_cast<size_t>(i * (vocab / top_k) + 1)] = 0.0f;
  }
  std::vector<cuda::DrawSpec> specs;
  for (uint32_t i = 0; i < 20; ++i) {
    specs.push_back({.temperature = 1.0f, .top_k = top_k, .token_index = i});
  }
  return Compared("draw/full_bound/top_k:" + std::to_string(top_k),
                  DrawBoth(device, logits, vocab, specs, 20));
}

// Random bits that are just at the border between two tokens of 1024 equal ones.
CheckResult CheckExactBorder(Device& device) {
  const cuda::DrawSpec spec{.temperature = 1.0f, .token_index = 1617994322};
  const Draws draws = DrawBoth(device, std::vector<float>(1024, 1.5f), 1024, {spec}, 1);
  CheckResult result = Compared("draw/exact_border", draws);
  if (draws.expected[0] != 697) {
    result.ok = false;
    result.detail = "these bits are no border";
  }
  return result;
}

}  // namespace

std::vector<float> LogitsOf(LogitKind kind, int64_t vocab, uint32_t seed) {
  std::mt19937 random(seed + 1);
  std::vector<float> row = Normal(vocab, seed);
  for (float& logit : row) logit = LogitOf(kind, logit, static_cast<uint32_t>(random()));
  if (kind == LogitKind::kMostlyOut) row[static_cast<size_t>(vocab / 2)] = 0.25f;
  if (kind == LogitKind::kUnusable) {
    const size_t at = random() % row.size();
    switch (seed % 3) {
      case 0:
        row[at] = std::numeric_limits<float>::quiet_NaN();
        break;
      case 1:
        row[at] = kInfinity;
        break;
      default:
        std::fill(row.begin(), row.end(), -kInfinity);
        break;
    }
  }
  return row;
}

Draws DrawBoth(Device& device, const std::vector<float>& logits, int64_t vocab,
               const std::vector<cuda::DrawSpec>& specs, int32_t count) {
  const StreamId stream = Must(device.CreateStream());
  const int32_t all = static_cast<int32_t>(specs.size());
  const DeviceBuffer<float> logits_d(device, logits, stream);
  const DeviceBuffer<cuda::DrawSpec> specs_d(device, specs, stream);
  const DeviceBuffer<int32_t> count_d(device, std::vector<int32_t>{count}, stream);
  const DeviceBuffer<int32_t> tokens_d(
      device, std::vector<int32_t>(specs.size(), kNotDrawn), stream);
  const cuda::DrawArgs args{.logits = logits_d.data(),
                            .specs = specs_d.data(),
                            .spec_count = count_d.data(),
                            .tokens = tokens_d.data(),
                            .vocab = vocab};
  Must(device.Launch(cuda::DrawLaunch(args, all), args, stream));

  Draws draws{.got = tokens_d.Download(),
              .expected = std::vector<int32_t>(specs.size(), kNotDrawn)};
  std::vector<std::byte> memory(SampleScratchBytes(vocab) + 64);
  const auto start = reinterpret_cast<uintptr_t>(memory.data());
  const SampleScratch scratch =
      MakeSampleScratch(memory.data() + (64 - start % 64) % 64, vocab);
  for (size_t i = 0; i < static_cast<size_t>(count); ++i) {
    const cuda::DrawSpec& spec = specs[i];
    draws.expected[i] = SampleToken(*FindCpuOps("portable"),
                                    {.logits = logits.data() + spec.logit_row * vocab,
                                     .vocab = vocab,
                                     .temperature = spec.temperature,
                                     .top_k = spec.top_k,
                                     .top_p = spec.top_p,
                                     .min_p = spec.min_p,
                                     .seed = spec.seed,
                                     .choice = spec.choice,
                                     .token_index = spec.token_index},
                                    scratch);
  }
  return draws;
}

CheckResults CheckSampling(Device& device, CheckSize size) {
  CheckResults results;
  for (const int64_t vocab : {1, 5, 127}) {
    results.push_back(CheckVocab(device, vocab, 1, static_cast<uint32_t>(vocab)));
  }
  for (const int64_t vocab : {1000, 2049, 4099}) {
    results.push_back(CheckVocab(device, vocab, 2, static_cast<uint32_t>(vocab)));
  }
  results.push_back(CheckWeightBits(device));
  results.push_back(CheckExactBorder(device));
  results.push_back(CheckFullBound(device, 10, 300));
  results.push_back(CheckFullBound(device, 5000, 11000));
  // More than are listed.
  results.push_back(CheckVocab(device, 20000, 1, 1));
  if (size == CheckSize::kLarge) {  // The last two: bins of more than 128 ids.
    for (const int64_t vocab : {32000, 49152, 128256, 151937, 262144}) {
      results.push_back(CheckVocab(device, vocab, 8, static_cast<uint32_t>(vocab)));
    }
  }
  return results;
}

}  // namespace renga::test
