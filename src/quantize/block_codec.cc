#include "quantize/block_codec.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "formats/ggml_type.h"
#include "kernels/block_format.h"
#include "quantize/block_fit.h"

namespace renga {
namespace {

// The largest weight whose scales are halves for every type (Q4_0: also -8 times one).
constexpr float kLargestWeight = 32768.0f;
constexpr float kLargestHalf = 65504.0f;

constexpr std::pair<std::string_view, uint32_t> kWritten[] = {
    {"f32", kGgmlF32},   {"f16", kGgmlF16},   {"q8_0", kGgmlQ8_0},
    {"q4_0", kGgmlQ4_0}, {"q4_1", kGgmlQ4_1}, {"q4_k", kGgmlQ4K}};

template <class T>
T LoadAs(const std::byte* data) {
  T value;
  std::memcpy(&value, data, sizeof value);
  return value;
}

float LoadHalf(const std::byte* data) { return F16ToF32(LoadAs<uint16_t>(data)); }

// Writes values one after another.
class Cursor {
 public:
  explicit Cursor(std::byte* to) : to_(to) {}
  template <class T>
  void Put(T value) {
    std::memcpy(to_, &value, sizeof value);
    to_ += sizeof value;
  }

 private:
  std::byte* to_;
};

// ---- Reading one block -------------------------------------------------------------

void ReadF32(const std::byte* data, float* out) { std::memcpy(out, data, sizeof *out); }
void ReadF16(const std::byte* data, float* out) { *out = LoadHalf(data); }
void ReadBf16(const std::byte* data, float* out) {
  *out = BitsFloat(static_cast<uint32_t>(LoadAs<uint16_t>(data)) << 16);
}

void ReadQ8_0(const std::byte* data, float* out) {
  const float d = LoadHalf(data);
  for (int i = 0; i < kFitBlock; ++i) {
    out[i] = d * static_cast<float>(LoadAs<int8_t>(data + 2 + i));
  }
}

void ReadNibbles(const std::byte* bytes, float step, float least, float* out) {
  for (int i = 0; i < kFitBlock / 2; ++i) {
    const auto pair = static_cast<unsigned>(bytes[i]);
    out[i] = std::fmaf(static_cast<float>(pair & 15u), step, least);
    out[i + kFitBlock / 2] = std::fmaf(static_cast<float>(pair >> 4), step, least);
  }
}

void ReadQ4_0(const std::byte* data, float* out) {
  const float d = LoadHalf(data);
  ReadNibbles(data + 2, d, -8.0f * d, out);
}

void ReadQ4_1(const std::byte* data, float* out) {
  ReadNibbles(data + 4, LoadHalf(data), LoadHalf(data + 2), out);
}

void ReadQ4K(const std::byte* data, float* out) {
  const float d = LoadHalf(data);
  const float dmin = LoadHalf(data + 2);
  const auto* packed = reinterpret_cast<const uint8_t*>(data + 4);
  for (int b = 0; b < kFitSuperBlocks; ++b) {
    uint8_t scale = 0;
    uint8_t min = 0;
    Q4KScale(packed, b, &scale, &min);
    const float step = d * static_cast<float>(scale);
    const float least = -(dmin * static_cast<float>(min));
    const std::byte* nibbles = data + 16 + b / 2 * kFitBlock;
    for (int i = 0; i < kFitBlock; ++i) {
      const auto code = static_cast<unsigned>(nibbles[i]) >> (b % 2 * 4) & 15u;
      out[b * kFitBlock + i] = std::fmaf(static_cast<float>(code), step, least);
    }
  }
}

// ---- Writing one block -------------------------------------------------------------

void WriteF32(const float* x, std::byte* out) { std::memcpy(out, x, sizeof *x); }
void WriteF16(const float* x, std::byte* out) { Cursor(out).Put(F32ToF16(*x)); }

void WriteQ8_0(const float* x, std::byte* out) {
  const SymmetricBlock block = FitQ8_0(std::span<const float, kFitBlock>(x, kFitBlock));
  Cursor cursor(out);
  cursor.Put(block.scale);
  for (const int8_t code : block.codes) cursor.Put(code);
}

// Byte i: element i low, element i + 16 high.
template <class Code>
void PutPairs(Cursor& cursor, const Code& code) {
  for (int i = 0; i < kFitBlock / 2; ++i) {
    cursor.Put(static_cast<uint8_t>(code(i) | code(i + kFitBlock / 2) << 4));
  }
}

void WriteQ4_0(const float* x, std::byte* out) {
  const SymmetricBlock block = FitQ4_0(std::span<const float, kFitBlock>(x, kFitBlock));
  Cursor cursor(out);
  cursor.Put(block.scale);
  PutPairs(cursor, [&](int i) { return block.codes[i] + 8; });
}

void WriteQ4_1(const float* x, std::byte* out) {
  const AffineBlock block = FitQ4_1(std::span<const float, kFitBlock>(x, kFitBlock));
  Cursor cursor(out);
  cursor.Put(block.scale);
  cursor.Put(block.least);
  PutPairs(cursor, [&](int i) { return block.codes[i]; });
}

void WriteQ4K(const float* x, std::byte* out) {
  const SuperBlock super = FitQ4K(std::span<const float, kFitSuper>(x, kFitSuper));
  const auto& s = super.scales;
  const auto& m = super.mins;
  Cursor cursor(out);
  cursor.Put(super.scale);
  cursor.Put(super.min);
  for (int j = 0; j < 4; ++j) cursor.Put(static_cast<uint8_t>(s[j] | s[j + 4] >> 4 << 6));
  for (int j = 0; j < 4; ++j) cursor.Put(static_cast<uint8_t>(m[j] | m[j + 4] >> 4 << 6));
  for (int j = 4; j < 8; ++j) {
    cursor.Put(static_cast<uint8_t>((s[j] & 15) | (m[j] & 15) << 4));
  }
  for (int b = 0; b < kFitSuperBlocks; b += 2) {
    const uint8_t* low = super.codes + b * kFitBlock;
    for (int i = 0; i < kFitBlock; ++i) {
      cursor.Put(static_cast<uint8_t>(low[i] | low[i + kFitBlock] << 4));
    }
  }
}

struct Codec {
  uint32_t type;
  void (*read)(const std::byte*, float*);
  void (*write)(const float*, std::byte*);  // nullptr: not written.
};

constexpr Codec kCodecs[] = {
    {kGgmlF32, ReadF32, WriteF32},    {kGgmlF16, ReadF16, WriteF16},
    {kGgmlBf16, ReadBf16, nullptr},   {kGgmlQ8_0, ReadQ8_0, WriteQ8_0},
    {kGgmlQ4_0, ReadQ4_0, WriteQ4_0}, {kGgmlQ4_1, ReadQ4_1, WriteQ4_1},
    {kGgmlQ4K, ReadQ4K, WriteQ4K},
};

const Codec* FindCodec(uint32_t ggml_type) {
  const auto* found =
      std::find_if(std::begin(kCodecs), std::end(kCodecs),
                   [&](const Codec& codec) { return codec.type == ggml_type; });
  return found == std::end(kCodecs) ? nullptr : found;
}

}  // namespace

StatusOr<uint32_t> ParseQuantType(std::string_view word, std::string_view option) {
  std::string known;
  for (const auto& [name, type] : kWritten) {
    if (word == name) return type;
    if (!known.empty()) known += ", ";
    known += name;
  }
  std::string message = "must be one of ";
  message.append(known).append(", is '").append(word).append("'");
  return InvalidArgument(std::string(option), std::move(message));
}

std::string QuantTypeName(uint32_t ggml_type) { return GgmlTypeName(ggml_type); }

int64_t BlockValuesOf(uint32_t ggml_type) {
  return FindGgmlType(ggml_type)->block_values;
}

int64_t RowBytes(uint32_t ggml_type, int64_t cols) {
  const GgmlTypeInfo* info = FindGgmlType(ggml_type);
  return cols / info->block_values * info->block_bytes;
}

bool CanReadType(uint32_t ggml_type) { return FindCodec(ggml_type) != nullptr; }

bool CanWriteType(uint32_t ggml_type) {
  const Codec* codec = FindCodec(ggml_type);
  return codec != nullptr && codec->write != nullptr;
}

void ReadRow(uint32_t ggml_type, const std::byte* row, std::span<float> values) {
  const Codec* codec = FindCodec(ggml_type);
  const GgmlTypeInfo* info = FindGgmlType(ggml_type);
  for (size_t i = 0; i < values.size(); i += static_cast<size_t>(info->block_values)) {
    codec->read(row, values.data() + i);
    row += info->block_bytes;
  }
}

bool WriteRow(uint32_t ggml_type, std::span<const float> values, std::byte* row) {
  const Codec* codec = FindCodec(ggml_type);
  const GgmlTypeInfo* info = FindGgmlType(ggml_type);
  if (ggml_type != kGgmlF32) {
    const float limit = ggml_type == kGgmlF16 ? kLargestHalf : kLargestWeight;
    const bool fits = std::all_of(values.begin(), values.end(), [limit](float value) {
      return std::fabs(value) <= limit;
    });
    if (!fits) return false;
  }
  for (size_t i = 0; i < values.size(); i += static_cast<size_t>(info->block_values)) {
    codec->write(values.data() + i, row);
    row += info->block_bytes;
  }
  return true;
}

}  // namespace renga
