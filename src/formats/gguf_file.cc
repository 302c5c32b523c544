#include "formats/gguf_file.h"

#include <cstring>
#include <limits>
#include <utility>

#include "base/status_macros.h"
#include "formats/gguf_parser.h"

namespace renga {
namespace {

template <class T>
T LoadAs(const std::byte* data) {
  T value;
  std::memcpy(&value, data, sizeof value);
  return value;
}

// The value of an integer of any width. nullopt-like: false if it is negative or no
// integer.
bool LoadUint(const GgufValue& value, uint64_t& result) {
  int64_t number = 0;
  switch (value.type) {
    case GgufType::kUint64:
      result = LoadAs<uint64_t>(value.data);
      return true;
    case GgufType::kUint32:
      number = LoadAs<uint32_t>(value.data);
      break;
    case GgufType::kUint16:
      number = LoadAs<uint16_t>(value.data);
      break;
    case GgufType::kUint8:
      number = LoadAs<uint8_t>(value.data);
      break;
    case GgufType::kInt64:
      number = LoadAs<int64_t>(value.data);
      break;
    case GgufType::kInt32:
      number = LoadAs<int32_t>(value.data);
      break;
    case GgufType::kInt16:
      number = LoadAs<int16_t>(value.data);
      break;
    case GgufType::kInt8:
      number = LoadAs<int8_t>(value.data);  // NOLINT(bugprone-signed-char-misuse)
      break;
    default:
      return false;
  }
  result = static_cast<uint64_t>(number);
  return number >= 0;
}

// Appends `count` integers of type T.
template <class T>
void AppendInts(const std::byte* data, uint64_t count, std::vector<int64_t>& out) {
  out.reserve(count);
  for (uint64_t i = 0; i < count; ++i) {
    out.push_back(static_cast<int64_t>(LoadAs<T>(data + i * sizeof(T))));
  }
}

}  // namespace

StatusOr<std::unique_ptr<GgufFile>> GgufFile::Open(const std::string& path) {
  RENGA_ASSIGN_OR_RETURN(MappedFile mapping, MappedFile::Open(path));
  std::string name = BaseName(path);
  RENGA_ASSIGN_OR_RETURN(GgufContents contents, ParseGguf(name, mapping.bytes()));
  return std::unique_ptr<GgufFile>(
      new GgufFile(std::move(name), std::move(mapping), std::move(contents)));
}

StatusOr<std::unique_ptr<GgufFile>> GgufFile::FromBytes(
    std::string name, std::span<const std::byte> bytes) {
  RENGA_ASSIGN_OR_RETURN(GgufContents contents, ParseGguf(name, bytes));
  return std::unique_ptr<GgufFile>(
      new GgufFile(std::move(name), MappedFile(), std::move(contents)));
}

bool GgufFile::Has(std::string_view key) const { return contents_.values.contains(key); }

StatusOr<const GgufValue*> GgufFile::Find(std::string_view key, bool is_array) const {
  const auto found = contents_.values.find(key);
  if (found == contents_.values.end()) {
    return NotFound(name_ + ": key " + std::string(key) + " is missing")
        .WithField(std::string(key));
  }
  if (found->second.is_array != is_array) {
    return WrongType(key, found->second, is_array ? "an array" : "a single value");
  }
  return &found->second;
}

Status GgufFile::WrongType(std::string_view key, const GgufValue& value,
                           const char* wanted) const {
  return InvalidArgument(std::string(key), name_ + ": must be " + wanted + ", is " +
                                               (value.is_array ? "an array of " : "") +
                                               GgufTypeName(value.type));
}

StatusOr<std::string_view> GgufFile::GetString(std::string_view key) const {
  RENGA_ASSIGN_OR_RETURN(const GgufValue* value, Find(key, false));
  if (value->type != GgufType::kString) return WrongType(key, *value, "a string");
  const auto length = LoadAs<uint64_t>(value->data);
  return std::string_view(reinterpret_cast<const char*>(value->data) + sizeof length,
                          length);
}

StatusOr<uint64_t> GgufFile::GetUint(std::string_view key) const {
  RENGA_ASSIGN_OR_RETURN(const GgufValue* value, Find(key, false));
  uint64_t number = 0;
  if (!LoadUint(*value, number)) return WrongType(key, *value, "an integer of 0 or more");
  return number;
}

StatusOr<double> GgufFile::GetFloat(std::string_view key) const {
  RENGA_ASSIGN_OR_RETURN(const GgufValue* value, Find(key, false));
  if (value->type == GgufType::kFloat32) return double{LoadAs<float>(value->data)};
  if (value->type == GgufType::kFloat64) return LoadAs<double>(value->data);
  return WrongType(key, *value, "a float");
}

StatusOr<bool> GgufFile::GetBool(std::string_view key) const {
  RENGA_ASSIGN_OR_RETURN(const GgufValue* value, Find(key, false));
  if (value->type != GgufType::kBool) return WrongType(key, *value, "a bool");
  const auto byte = LoadAs<uint8_t>(value->data);
  if (byte > 1) {
    return InvalidArgument(std::string(key), name_ + ": a bool must be 0 or 1");
  }
  return byte == 1;
}

StatusOr<std::vector<std::string_view>> GgufFile::GetStrings(std::string_view key) const {
  RENGA_ASSIGN_OR_RETURN(const GgufValue* value, Find(key, true));
  if (value->type != GgufType::kString) return WrongType(key, *value, "strings");
  std::vector<std::string_view> strings;
  strings.reserve(value->count);  // At least 8 bytes each were seen in the file.
  const std::byte* data = value->data;
  for (uint64_t i = 0; i < value->count; ++i) {
    const auto length = LoadAs<uint64_t>(data);
    data += sizeof length;
    strings.emplace_back(reinterpret_cast<const char*>(data), length);
    data += length;
  }
  return strings;
}

StatusOr<std::vector<int64_t>> GgufFile::GetInts(std::string_view key) const {
  RENGA_ASSIGN_OR_RETURN(const GgufValue* value, Find(key, true));
  std::vector<int64_t> numbers;
  switch (value->type) {
    case GgufType::kInt32:
      AppendInts<int32_t>(value->data, value->count, numbers);
      return numbers;
    case GgufType::kUint32:
      AppendInts<uint32_t>(value->data, value->count, numbers);
      return numbers;
    case GgufType::kInt64:
      AppendInts<int64_t>(value->data, value->count, numbers);
      return numbers;
    case GgufType::kUint64:
      for (uint64_t i = 0; i < value->count; ++i) {
        if (LoadAs<uint64_t>(value->data + 8 * i) > std::numeric_limits<int64_t>::max()) {
          return InvalidArgument(std::string(key), name_ + ": a number is too large");
        }
      }
      AppendInts<uint64_t>(value->data, value->count, numbers);
      return numbers;
    default:
      return WrongType(key, *value, "integers of 32 or 64 bits");
  }
}

StatusOr<std::vector<float>> GgufFile::GetFloats(std::string_view key) const {
  RENGA_ASSIGN_OR_RETURN(const GgufValue* value, Find(key, true));
  if (value->type != GgufType::kFloat32)
    return WrongType(key, *value, "floats of 32 bits");
  std::vector<float> numbers(value->count);
  if (!numbers.empty()) {
    std::memcpy(numbers.data(), value->data, numbers.size() * sizeof(float));
  }
  return numbers;
}

StatusOr<uint64_t> GgufFile::GetArrayLength(std::string_view key) const {
  RENGA_ASSIGN_OR_RETURN(const GgufValue* value, Find(key, true));
  return value->count;
}

const GgufValue* GgufFile::FindValue(std::string_view key) const {
  const auto found = contents_.values.find(key);
  return found == contents_.values.end() ? nullptr : &found->second;
}

std::vector<std::string_view> GgufFile::Keys() const {
  std::vector<std::string_view> keys;
  keys.reserve(contents_.values.size());
  for (const auto& [key, value] : contents_.values) keys.push_back(key);
  return keys;
}

const GgufTensor* GgufFile::FindTensor(std::string_view name) const {
  const auto found = contents_.tensor_index.find(name);
  return found == contents_.tensor_index.end() ? nullptr
                                               : &contents_.tensors[found->second];
}

}  // namespace renga
