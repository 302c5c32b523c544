#include "formats/gguf_parser.h"

#include <bit>
#include <cstring>
#include <optional>
#include <utility>

#include "base/status_macros.h"
#include "formats/ggml_type.h"

namespace renga {
namespace {

static_assert(std::endian::native == std::endian::little,
              "values are copied out of the file as they are");

constexpr uint32_t kMagic = 0x46554747;  // "GGUF"
constexpr uint64_t kMaxKeyBytes = 65535;
constexpr uint64_t kMaxTensorNameBytes = 64;
constexpr uint64_t kDefaultAlignment = 32;
constexpr uint64_t kMaxAlignment = 1 << 20;
constexpr uint32_t kMaxDims = 4;
constexpr std::string_view kAlignmentKey = "general.alignment";

// Names in a hostile file may hold anything; messages must stay one line of text.
std::string Printable(std::string_view name) {
  constexpr size_t kMaxShown = 80;
  std::string shown(name.substr(0, kMaxShown));
  for (char& c : shown) {
    if (c < 0x20 || c > 0x7e) c = '?';
  }
  if (name.size() > kMaxShown) shown += "...";
  return shown;
}

class Parser {
 public:
  Parser(const std::string& name, std::span<const std::byte> bytes)
      : name_(name), bytes_(bytes) {}

  StatusOr<GgufContents> Parse() {
    uint64_t tensor_count = 0;
    uint64_t key_count = 0;
    RENGA_RETURN_IF_ERROR(ReadHeader(tensor_count, key_count));
    for (uint64_t i = 0; i < key_count; ++i) RENGA_RETURN_IF_ERROR(ReadKeyValue(i));
    RENGA_RETURN_IF_ERROR(ReadAlignment());
    for (uint64_t i = 0; i < tensor_count; ++i) RENGA_RETURN_IF_ERROR(ReadTensorInfo(i));
    RENGA_RETURN_IF_ERROR(PlaceTensors());
    return std::move(contents_);
  }

 private:
  // A tensor as its header describes it, before its place was checked.
  struct Placement {
    uint64_t offset = 0;  // From the start of the data section.
    uint64_t bytes = 0;
  };

  // All range checks compare with what is left: no sum can wrap.
  uint64_t Left() const { return bytes_.size() - position_; }

  Status Error(const std::string& what) const {
    return Status(StatusCode::kInvalidArgument, name_ + ": " + what);
  }

  Status CutShort(const std::string& what, uint64_t needed) const {
    return Error(what + " is cut short: " + std::to_string(needed) + " bytes at offset " +
                 std::to_string(position_) + ", file size " +
                 std::to_string(bytes_.size()));
  }

  template <class T>
  Status Read(const std::string& what, T& value) {
    if (Left() < sizeof(T)) return CutShort(what, sizeof(T));
    std::memcpy(&value, bytes_.data() + position_, sizeof(T));
    position_ += sizeof(T);
    return OkStatus();
  }

  Status ReadStringView(const std::string& what, uint64_t max_bytes,
                        std::string_view& text) {
    uint64_t length = 0;
    RENGA_RETURN_IF_ERROR(Read("the length of " + what, length));
    if (length > Left()) return CutShort(what, length);
    if (length > max_bytes) {
      return Error(what + " is " + std::to_string(length) + " bytes long, at most " +
                   std::to_string(max_bytes));
    }
    text = {reinterpret_cast<const char*>(bytes_.data() + position_), length};
    position_ += length;
    return OkStatus();
  }

  Status ReadHeader(uint64_t& tensor_count, uint64_t& key_count) {
    uint32_t magic = 0;
    if (bytes_.empty()) return Error("the file is empty");
    RENGA_RETURN_IF_ERROR(Read("the magic number", magic));
    if (magic != kMagic) return Error("not a GGUF file");
    RENGA_RETURN_IF_ERROR(Read("the version", contents_.version));
    if (contents_.version != 2 && contents_.version != 3) {
      return Error("GGUF version " + std::to_string(contents_.version) +
                   " is not supported (2 and 3, little endian)");
    }
    RENGA_RETURN_IF_ERROR(Read("the tensor count", tensor_count));
    RENGA_RETURN_IF_ERROR(Read("the key count", key_count));
    // The least that one needs: name length, a letter, dimensions, one of them, type,
    // offset; key length, a letter, type, one byte.
    RENGA_RETURN_IF_ERROR(CheckCount("tensors", tensor_count, 33, kMaxGgufTensors));
    return CheckCount("keys", key_count, 14, kMaxGgufKeys);
  }

  Status CheckCount(const char* of, uint64_t count, uint64_t least_bytes,
                    uint64_t limit) const {
    if (count > limit || count > Left() / least_bytes) {
      return Error("a count of " + std::to_string(count) + " " + of +
                   " cannot be: limit " + std::to_string(limit) + ", file size " +
                   std::to_string(bytes_.size()));
    }
    return OkStatus();
  }

  Status ReadKeyValue(uint64_t index) {
    std::string_view key;
    RENGA_RETURN_IF_ERROR(
        ReadStringView("key number " + std::to_string(index), kMaxKeyBytes, key));
    if (key.empty()) return Error("key number " + std::to_string(index) + " is empty");
    const std::string what = "key " + Printable(key);
    GgufValue value;
    RENGA_RETURN_IF_ERROR(Read("the type of " + what, value.type));
    if (value.type == GgufType::kArray) {
      value.is_array = true;
      RENGA_RETURN_IF_ERROR(Read("the element type of " + what, value.type));
      RENGA_RETURN_IF_ERROR(Read("the array length of " + what, value.count));
      if (value.type == GgufType::kArray) {
        return Error(what + ": arrays of arrays are not supported");
      }
    }
    RENGA_RETURN_IF_ERROR(SkipValues(what, value));
    if (!contents_.values.emplace(key, value).second) {
      return Error(what + " comes twice");
    }
    return OkStatus();
  }

  // Checks that the values lie inside the file, and steps over them.
  Status SkipValues(const std::string& what, GgufValue& value) {
    value.data = bytes_.data() + position_;
    if (value.type == GgufType::kString) return SkipStrings(what, value.count);
    const size_t bytes = GgufScalarBytes(value.type);
    if (bytes == 0) {
      return Error(what + " has the unknown type " +
                   std::to_string(static_cast<uint32_t>(value.type)));
    }
    if (value.count > Left() / bytes) return CountTooLarge(what, value.count);
    position_ += value.count * bytes;
    return OkStatus();
  }

  Status SkipStrings(const std::string& what, uint64_t count) {
    if (count > Left() / sizeof(uint64_t)) return CountTooLarge(what, count);
    for (uint64_t i = 0; i < count; ++i) {
      // Not ReadStringView: no message is built for each of 300,000 strings.
      uint64_t length = 0;
      if (Left() < sizeof length) return CutShort("a string of " + what, sizeof length);
      std::memcpy(&length, bytes_.data() + position_, sizeof length);
      position_ += sizeof length;
      if (length > Left()) return CutShort("a string of " + what, length);
      position_ += length;
    }
    return OkStatus();
  }

  Status CountTooLarge(const std::string& what, uint64_t count) const {
    return Error(what + ": " + std::to_string(count) + " values at offset " +
                 std::to_string(position_) + " do not fit, file size " +
                 std::to_string(bytes_.size()));
  }

  Status ReadAlignment() {
    const auto found = contents_.values.find(kAlignmentKey);
    if (found == contents_.values.end()) return OkStatus();
    const GgufValue& value = found->second;
    if (value.is_array || value.type != GgufType::kUint32) {
      return Error("key general.alignment must be a uint32");
    }
    uint32_t alignment = 0;
    std::memcpy(&alignment, value.data, sizeof alignment);
    if (alignment < 8 || alignment > kMaxAlignment || !std::has_single_bit(alignment)) {
      return Error("key general.alignment is " + std::to_string(alignment) +
                   ", must be a power of two from 8 to " + std::to_string(kMaxAlignment));
    }
    alignment_ = alignment;
    return OkStatus();
  }

  Status ReadTensorInfo(uint64_t index) {
    std::string_view name;
    RENGA_RETURN_IF_ERROR(ReadStringView(
        "the name of tensor number " + std::to_string(index), kMaxTensorNameBytes, name));
    if (name.empty()) {
      return Error("tensor number " + std::to_string(index) + " has no name");
    }
    const std::string what = "tensor " + Printable(name);
    GgufTensor tensor;
    tensor.name = Printable(name);
    RENGA_RETURN_IF_ERROR(ReadDims(what, tensor.dims));
    RENGA_RETURN_IF_ERROR(Read("the type of " + what, tensor.ggml_type));
    Placement place;
    RENGA_RETURN_IF_ERROR(Read("the offset of " + what, place.offset));
    if (place.offset % alignment_ != 0) {
      return Error(what + ": offset " + std::to_string(place.offset) +
                   " is not a multiple of the alignment " + std::to_string(alignment_));
    }
    RENGA_RETURN_IF_ERROR(TensorBytes(what, tensor, place.bytes));
    if (!contents_.tensor_index.emplace(name, contents_.tensors.size()).second) {
      return Error(what + " comes twice");
    }
    contents_.tensors.push_back(std::move(tensor));
    places_.push_back(place);
    return OkStatus();
  }

  Status ReadDims(const std::string& what, std::vector<int64_t>& dims) {
    uint32_t count = 0;
    RENGA_RETURN_IF_ERROR(Read("the number of dimensions of " + what, count));
    if (count < 1 || count > kMaxDims) {
      return Error(what + " has " + std::to_string(count) +
                   " dimensions, must be 1 to 4");
    }
    dims.resize(count);
    for (int64_t& dim : dims) {
      RENGA_RETURN_IF_ERROR(Read("a dimension of " + what, dim));
      if (dim <= 0) {
        return Error(what + " has a dimension of " +
                     std::to_string(static_cast<uint64_t>(dim)));
      }
    }
    return OkStatus();
  }

  Status TensorBytes(const std::string& what, const GgufTensor& tensor,
                     uint64_t& bytes) const {
    const GgmlTypeInfo* info = FindGgmlType(tensor.ggml_type);
    if (info == nullptr) {
      return Error(what + " has the unknown tensor type " +
                   std::to_string(tensor.ggml_type));
    }
    if (tensor.dims[0] % info->block_values != 0) {
      return Error(what + ": rows of " + std::to_string(tensor.dims[0]) +
                   " values are no whole blocks of " + info->name);
    }
    int64_t product = tensor.dims[0] / info->block_values;
    bool fits = !__builtin_mul_overflow(product, info->block_bytes, &product);
    for (size_t i = 1; i < tensor.dims.size(); ++i) {
      fits = fits && !__builtin_mul_overflow(product, tensor.dims[i], &product);
    }
    if (!fits) return Error(what + ": the product of its dimensions is too large");
    bytes = static_cast<uint64_t>(product);
    return OkStatus();
  }

  // The data section begins at the next multiple of the alignment.
  Status PlaceTensors() {
    const uint64_t padding = (alignment_ - position_ % alignment_) % alignment_;
    // A file without tensors may end before its data section would begin.
    const uint64_t start = position_ + (padding <= Left() ? padding : Left());
    const uint64_t available = bytes_.size() - start;
    for (size_t i = 0; i < places_.size(); ++i) {
      const Placement& place = places_[i];
      GgufTensor& tensor = contents_.tensors[i];
      if (place.offset > available || place.bytes > available - place.offset) {
        return Error("tensor " + tensor.name + " lies outside the file: offset " +
                     std::to_string(place.offset) + " in the data at " +
                     std::to_string(start) + ", size " + std::to_string(place.bytes) +
                     ", file size " + std::to_string(bytes_.size()));
      }
      tensor.data = bytes_.data() + start + place.offset;
      tensor.bytes = place.bytes;
    }
    return OkStatus();
  }

  const std::string& name_;
  const std::span<const std::byte> bytes_;
  uint64_t position_ = 0;  // Never beyond bytes_.size().
  uint64_t alignment_ = kDefaultAlignment;
  GgufContents contents_;
  std::vector<Placement> places_;  // One per tensor.
};

}  // namespace

StatusOr<GgufContents> ParseGguf(const std::string& name,
                                 std::span<const std::byte> bytes) {
  return Parser(name, bytes).Parse();
}

size_t GgufScalarBytes(GgufType type) {
  switch (type) {
    case GgufType::kUint8:
    case GgufType::kInt8:
    case GgufType::kBool:
      return 1;
    case GgufType::kUint16:
    case GgufType::kInt16:
      return 2;
    case GgufType::kUint32:
    case GgufType::kInt32:
    case GgufType::kFloat32:
      return 4;
    case GgufType::kUint64:
    case GgufType::kInt64:
    case GgufType::kFloat64:
      return 8;
    case GgufType::kString:
    case GgufType::kArray:
      return 0;
  }
  return 0;
}

const char* GgufTypeName(GgufType type) {
  static constexpr const char* kNames[] = {
      "uint8", "int8",   "uint16", "int16",  "uint32", "int32",  "float32",
      "bool",  "string", "array",  "uint64", "int64",  "float64"};
  const auto index = static_cast<size_t>(type);
  return index < std::size(kNames) ? kNames[index] : "unknown";
}

}  // namespace renga
