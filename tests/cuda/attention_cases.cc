// See attention_cases.h. A row's bits are compared between both kernels, between tilings,
// and with the row alone on other pages.
//
// Thread safety: none.

#include "tests/cuda/attention_cases.h"

#include <cmath>

#include "kernels/block_format.h"

namespace renga::test {

namespace {

using cuda::PageKind;
using Out = AttentionScene::Out;

// Relative to the norm of the result. Measured under the emulator: f16 2.3e-4 (rounding
// of p and of the result), bf16 7e-4 (of p), int8 6e-4 (of q * step and of p * scale). A
// GPU's mma truncates sums, and its exp2 is approximate to 2^-22.
double Bound(PageKind kind) {
  switch (kind) {
    case PageKind::kF16:
      return 1e-3;
    case PageKind::kBf16:
      return 4e-3;
    case PageKind::kInt8:
      return 2e-3;
  }
  return 0.0;
}

CheckResult Values(const AttentionScene& scene, const std::string& kernel,
                   const Out& got) {
  const std::vector<double> wanted = scene.Reference();
  std::vector<double> values;
  for (const uint16_t bits : got) values.push_back(static_cast<double>(F16ToF32(bits)));
  CheckResult result{.name = "attention/" + kernel + "/" + SceneName(scene.spec()),
                     .error = RelativeError(values, wanted),
                     .bound = Bound(scene.spec().kind),
                     .detail = scene.wrong()};
  // A single wrong row among many shows here.
  double worst = 0.0;
  for (size_t i = 0; i < wanted.size(); ++i) {
    const double difference = std::abs(values[i] - wanted[i]);
    if (difference <= worst) continue;
    worst = difference;
    if (!(difference <= 20 * result.bound * scene.spec().value_scale)) {
      result.detail = "far off at " + std::to_string(i);
    }
  }
  result.ok = result.error <= result.bound && result.detail.empty();
  return result;
}

CheckResult SameBits(std::string name, const Out& got, const Out& wanted,
                     const std::string& wrong = {}) {
  CheckResult result{.name = "attention/" + std::move(name), .detail = wrong};
  for (size_t i = 0; i < wanted.size(); ++i) {
    if (i < got.size() && got[i] == wanted[i]) continue;
    if (result.error++ == 0) result.detail = "first at " + std::to_string(i);
  }
  result.ok = result.error == 0 && got.size() == wanted.size() && result.detail.empty();
  return result;
}

SceneSpec Scene(PageKind kind, int32_t head_dim, int32_t heads,
                std::vector<SceneSequence> sequences) {
  SceneSpec spec{.kind = kind, .head_dim = head_dim, .heads = heads};
  spec.sequences = std::move(sequences);
  return spec;
}

// Both kernels, and that they agree.
void CheckScene(Device& device, const SceneSpec& spec, CheckResults& results) {
  AttentionScene scene(device, spec);
  const Out decode = scene.Decode({.spare_tiles = 2, .spare_groups = 1});
  results.push_back(Values(scene, "decode", decode));
  const Out prefill = scene.Prefill({.spare_tiles = 2});
  results.push_back(Values(scene, "prefill", prefill));
  results.push_back(SameBits("decode_is_prefill/" + SceneName(spec), decode, prefill));
}

// Rows first.. of `all`, as far as `like` goes.
Out RowsOf(const AttentionScene& scene, const Out& all, int32_t first, size_t values) {
  const auto begin = all.begin() + first * scene.row_values();
  return Out(begin, begin + static_cast<int64_t>(values));
}

// A row alone, in its own tile, on other pages, with nothing written behind it.
void CheckAlone(Device& device, PageKind kind, int32_t head_dim, CheckResults& results) {
  const SceneSpec spec =
      Scene(kind, head_dim, 3, {{150, 40, 1}, {700, 3, 2}, {64, 2, 3}, {700, 1, 2}});
  AttentionScene scene(device, spec);
  const Out batch = scene.Decode();
  const std::string name = SceneName(spec);
  results.push_back(
      SameBits("one_row_a_tile/" + name, scene.Decode({.packed_rows = 3}), batch));
  results.push_back(
      SameBits("heads_apart/" + name, scene.Decode({.packed_rows = 2}), batch));
  results.push_back(
      SameBits("prefill_tiles/" + name, scene.Prefill({.packed_rows = 21}), batch));
  struct Row {
    int32_t index;
    SceneSequence sequence;
  };
  for (const Row& row : {Row{0, {111, 1, 1}}, Row{17, {128, 1, 1}}, Row{18, {129, 1, 1}},
                         Row{40, {698, 1, 2}}, Row{43, {63, 1, 3}}}) {
    SceneSpec alone = Scene(kind, head_dim, 3, {row.sequence});
    alone.page_seed = 9;
    AttentionScene other(device, alone);
    const Out got = other.Decode({.spare_tiles = 5, .spare_groups = 3});
    results.push_back(SameBits("alone/" + SceneName(alone), got,
                               RowsOf(scene, batch, row.index, got.size()),
                               other.wrong()));
    results.push_back(
        SameBits("alone_prefill/" + SceneName(alone), other.Prefill(), got));
  }
}

// Pages of any bytes: both kernels agree, and end.
void CheckAnyBytes(Device& device, PageKind kind, CheckResults& results) {
  SceneSpec spec = Scene(kind, 64, 4, {{300, 2, 1}, {70, 1, 2}});
  spec.random_bytes = true;
  AttentionScene scene(device, spec);
  const auto numbers = [](Out out) {  // NaNs are alike.
    for (uint16_t& bits : out) {
      if (std::isnan(F16ToF32(bits))) bits = 0x7FFF;
    }
    return out;
  };
  const Out decode = numbers(scene.Decode());
  results.push_back(SameBits("any_bytes/" + SceneName(spec), numbers(scene.Prefill()),
                             decode, scene.wrong()));
}

}  // namespace

std::vector<SceneSpec> AttentionScenes(CheckSize size) {
  std::vector<SceneSpec> scenes = {
      Scene(PageKind::kF16, 64, 4, {{257, 1, 1}, {5, 1, 2}, {1000, 1, 3}, {65, 3, 4}}),
      Scene(PageKind::kF16, 128, 3, {{1, 1, 1}, {63, 1, 2}, {64, 1, 3}, {300, 70, 4}}),
      Scene(PageKind::kF16, 128, 8, {{513, 1, 1}, {513, 2, 1}, {200, 1, 1}}),
      Scene(PageKind::kF16, 16, 1, {{130, 130, 1}, {17, 1, 2}}),
      Scene(PageKind::kF16, 32, 20, {{140, 9, 1}, {300, 1, 2}}),
      Scene(PageKind::kF16, 96, 16, {{129, 5, 1}, {640, 1, 2}}),
      Scene(PageKind::kBf16, 64, 4, {{129, 1, 1}, {17, 17, 2}, {640, 1, 3}}),
      Scene(PageKind::kBf16, 128, 16, {{513, 1, 1}, {200, 3, 2}}),
      Scene(PageKind::kBf16, 96, 2, {{90, 1, 1}}),
      Scene(PageKind::kBf16, 32, 5, {{90, 10, 1}}),
      Scene(PageKind::kBf16, 16, 2, {{90, 1, 1}, {333, 1, 2}}),
      Scene(PageKind::kInt8, 64, 4,
            {{257, 1, 1}, {64, 1, 2}, {1000, 1, 3}, {190, 80, 4}}),
      Scene(PageKind::kInt8, 128, 8, {{330, 2, 1}, {330, 1, 1}, {65, 1, 3}}),
      Scene(PageKind::kInt8, 16, 2, {{200, 150, 1}, {17, 1, 2}}),
      Scene(PageKind::kInt8, 32, 20, {{140, 9, 1}, {300, 1, 2}}),
      Scene(PageKind::kInt8, 96, 3, {{129, 5, 1}, {640, 1, 2}})};
  scenes.push_back(Scene(PageKind::kInt8, 64, 4, {{400, 2, 1}}));
  scenes.back().value_scale = 1e-3f;  // p * scale would be subnormal in f16.
  if (size == CheckSize::kSmall) return scenes;
  for (const PageKind kind : {PageKind::kF16, PageKind::kBf16, PageKind::kInt8}) {
    for (const int32_t head_dim : {64, 128}) {
      scenes.push_back(
          Scene(kind, head_dim, 4, {{8192, 1, 1}, {4097, 1, 2}, {1000, 64, 3}}));
    }
  }
  return scenes;
}

CheckResults CheckAttention(Device& device, CheckSize size) {
  CheckResults results;
  for (const SceneSpec& spec : AttentionScenes(size)) CheckScene(device, spec, results);
  for (const PageKind kind : {PageKind::kF16, PageKind::kBf16, PageKind::kInt8}) {
    CheckAlone(device, kind, size == CheckSize::kSmall ? 32 : 128, results);
    CheckAnyBytes(device, kind, results);
  }
  return results;
}

}  // namespace renga::test
