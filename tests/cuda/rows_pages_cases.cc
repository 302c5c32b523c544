// Closing and copying: see rows_cases.h.

#include "kernels/cpu/cpu_ops.h"
#include "kernels/cuda/rows.h"
#include "kernels/kv_page_format.h"
#include "tests/cuda/compare.h"
#include "tests/cuda/rows_cases.h"

namespace renga::test {
namespace {

// A form's K and V of one head: [128 hd] halves.
enum class FormKind { kNormal, kMixed, kAnyBits, kZeros };
constexpr FormKind kFormKinds[] = {FormKind::kNormal, FormKind::kMixed,
                                   FormKind::kAnyBits, FormKind::kZeros};

// Sizes of channels and tokens: ordinary, constant, zeros of both signs, subnormal, the
// largest f16, far from 0, one that is not finite.
uint16_t MixedHalf(int64_t group, float ordinary, uint32_t random) {
  const uint32_t sign = (random & 1) << 15;
  switch (group % 9) {
    case 1:
      return F32ToF16(-3.25f);
    case 2:
      return static_cast<uint16_t>(sign);
    case 3:
      return static_cast<uint16_t>(sign | (random >> 1 & 0x3FF));
    case 4:
      return static_cast<uint16_t>(sign | 0x7BFF);
    case 5:
      return F32ToF16(100.0f + static_cast<float>(random % 64) * 0.0625f);
    case 6:  // So small that a value's scale is 0.
      return static_cast<uint16_t>(sign | (random >> 1 & 31));
    case 7:
      return random % 50 == 0 ? static_cast<uint16_t>(sign | 0x7C00 | (random >> 8 & 1))
                              : F32ToF16(ordinary);
    default:
      return F32ToF16(ordinary);
  }
}

std::vector<uint16_t> FormOf(FormKind kind, int64_t hd, uint32_t seed) {
  std::mt19937 random(seed);
  const auto ordinary = Normal(128 * hd, seed + 1);
  std::vector<uint16_t> form;
  for (int64_t i = 0; i < 128 * hd; ++i) {
    const float value = ordinary[static_cast<size_t>(i)];
    const uint32_t bits = static_cast<uint32_t>(random());
    const int64_t group = i < 64 * hd ? i / 16 % hd : (i - 64 * hd) / hd;
    switch (kind) {
      case FormKind::kNormal:
        form.push_back(F32ToF16(value));
        break;
      case FormKind::kMixed:
        form.push_back(MixedHalf(group, value, bits));
        break;
      case FormKind::kAnyBits:
        form.push_back(static_cast<uint16_t>(bits));
        break;
      case FormKind::kZeros:
        form.push_back(static_cast<uint16_t>(bits << 15));
        break;
    }
  }
  return form;
}

// 4 forms of 2 layers x 2 heads; 3 of them are closed, into pages 5, 0 and 2 of 6.
CheckResult CheckClose(Device& device, StreamId stream, FormKind kind, int32_t hd) {
  constexpr int64_t kForms = 4;
  constexpr int64_t kHeads = 2;
  constexpr int64_t kPages = 6;
  const std::vector<cuda::CloseItem> items = {{1, 5}, {0, 0}, {3, 2}, {2, 1}};
  const int64_t head_halves = 128 * int64_t{hd};
  const int64_t head_bytes = Int8PageOf(hd).bytes;
  std::vector<uint16_t> forms;
  for (int64_t i = 0; i < kForms * 2 * kHeads; ++i) {
    const auto form = FormOf(kind, hd, static_cast<uint32_t>(100 + i));
    forms.insert(forms.end(), form.begin(), form.end());
  }
  const DeviceBuffer<uint16_t> forms_d(device, forms, stream);
  std::vector<cuda::ChunkForm> table;
  for (int64_t i = 0; i < kForms; ++i) {
    uint16_t* base = forms_d.data() + i * 2 * kHeads * head_halves;
    table.push_back({.base = reinterpret_cast<uint8_t*>(base),
                     .layer_bytes = kHeads * head_halves * 2});
  }
  const DeviceBuffer<cuda::ChunkForm> table_d(device, table, stream);
  const DeviceBuffer<cuda::CloseItem> items_d(device, items, stream);
  const DeviceBuffer<int32_t> count_d(device, std::vector<int32_t>{3}, stream);
  const DeviceBuffer<uint8_t> pool_d(device, kPages * 2 * kHeads * head_bytes, stream);
  const cuda::KvCloseArgs args{.items = items_d.data(),
                               .item_count = count_d.data(),
                               .forms = table_d.data(),
                               .pool = pool_d.data() + kHeads * head_bytes,
                               .page_bytes = 2 * kHeads * head_bytes,
                               .page_head_bytes = head_bytes,
                               .form_head_bytes = head_halves * 2,
                               .layer = 1,
                               .kv_heads = kHeads,
                               .head_dim = hd};
  Must(device.Launch(cuda::KvCloseLaunch(args, 4), args, stream));

  std::vector<uint8_t> expected(static_cast<size_t>(pool_d.size()), 0xff);
  for (size_t i = 0; i < 3; ++i) {
    for (int64_t head = 0; head < kHeads; ++head) {
      const int64_t form = (items[i].form * 2 + 1) * kHeads + head;
      const int64_t page = (items[i].page * 2 + 1) * kHeads + head;
      FindCpuOps("portable")
          ->kv_close_int8({.open = reinterpret_cast<const uint8_t*>(forms.data() +
                                                                    form * head_halves),
                           .page = expected.data() + page * head_bytes,
                           .head_dim = hd});
    }
  }
  return CompareBits("kv_close/hd:" + std::to_string(hd) +
                         "/kind:" + std::to_string(static_cast<int>(kind)),
                     pool_d, expected);
}

// Layers 1 and 2 of 3; chunk 0 -> 1 with `tokens`, 2 -> 3 whole, 3 -> 2 not counted.
CheckResult CheckCopy(Device& device, StreamId stream, int32_t hd, int32_t tokens) {
  constexpr int64_t kHeads = 2;
  constexpr int64_t kLayers = 3;
  const int64_t head_halves = 128 * int64_t{hd};
  const int64_t chunk_halves = kLayers * kHeads * head_halves;
  std::vector<uint16_t> from;
  for (int64_t i = 0; i < 2 * chunk_halves; ++i) {
    from.push_back(static_cast<uint16_t>(i * 7 + 1));
  }
  const DeviceBuffer<uint16_t> from_d(device, from, stream);
  const DeviceBuffer<uint16_t> to_d(device, 2 * chunk_halves, stream);
  const auto chunk = [&](const DeviceBuffer<uint16_t>& buffer, int64_t i) {
    return cuda::ChunkForm{
        .base = reinterpret_cast<uint8_t*>(buffer.data() + i * chunk_halves),
        .layer_bytes = kHeads * head_halves * 2};
  };
  const std::vector<cuda::CopyItem> items = {
      {.from = chunk(from_d, 0), .to = chunk(to_d, 1), .tokens = tokens},
      {.from = chunk(from_d, 1), .to = chunk(to_d, 0), .tokens = 64},
      {.from = chunk(from_d, 1), .to = chunk(to_d, 1), .tokens = 64}};
  const DeviceBuffer<cuda::CopyItem> items_d(device, items, stream);
  const DeviceBuffer<int32_t> count_d(device, std::vector<int32_t>{2}, stream);
  const cuda::KvCopyArgs args{.items = items_d.data(),
                              .item_count = count_d.data(),
                              .head_bytes = head_halves * 2,
                              .first_layer = 1,
                              .layers = 2,
                              .kv_heads = kHeads,
                              .head_dim = hd};
  Must(device.Launch(cuda::KvCopyLaunch(args, 3), args, stream));

  std::vector<uint16_t> expected(static_cast<size_t>(2 * chunk_halves), 0xFFFF);
  for (int64_t i = 0; i < chunk_halves; ++i) {
    if (i < kHeads * head_halves) continue;  // Layer 0.
    const int64_t at = i % head_halves;
    const int64_t position =
        at < 64 * hd ? at / (16 * hd) * 16 + at % 16 : (at - 64 * hd) / hd;
    const size_t first = static_cast<size_t>(i);
    const size_t second = static_cast<size_t>(chunk_halves + i);
    expected[first] = from[second];
    if (position < tokens) expected[second] = from[first];
  }
  return CompareBits(
      "kv_copy/hd:" + std::to_string(hd) + "/tokens:" + std::to_string(tokens), to_d,
      expected);
}

}  // namespace

CheckResults CheckPages(Device& device, CheckSize size) {
  const StreamId stream = Must(device.CreateStream());
  CheckResults results;
  std::vector<int32_t> head_dims = {16, 48, 64, 128, 256};
  if (size == CheckSize::kLarge) head_dims.insert(head_dims.end(), {32, 80, 96, 240});
  for (const int32_t hd : head_dims) {
    for (const FormKind kind : kFormKinds) {
      results.push_back(CheckClose(device, stream, kind, hd));
    }
  }
  for (const int32_t tokens : {0, 1, 7, 8, 15, 16, 17, 40, 63, 64}) {
    results.push_back(CheckCopy(device, stream, 16, tokens));
  }
  for (const int32_t hd : {20, 64, 128}) {
    results.push_back(CheckCopy(device, stream, hd, 37));
  }
  return results;
}

}  // namespace renga::test
