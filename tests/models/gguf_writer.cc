#include "tests/models/gguf_writer.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

namespace renga::test {
namespace {

constexpr uint32_t kMagic = 0x46554747;
constexpr uint32_t kVersion = 3;
constexpr size_t kAlignment = 32;

constexpr uint32_t kUint8 = 0, kUint32 = 4, kInt32 = 5, kFloat32 = 6, kBool = 7,
                   kString = 8, kArray = 9, kUint64 = 10;

template <class T>
std::string Raw(const std::vector<T>& values) {
  std::string bytes(values.size() * sizeof(T), '\0');
  if (!values.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

std::string RawString(std::string_view text) {
  const uint64_t length = text.size();
  std::string bytes(sizeof length, '\0');
  std::memcpy(bytes.data(), &length, sizeof length);
  return bytes.append(text);
}

size_t AlignUp(size_t size) { return (size + kAlignment - 1) / kAlignment * kAlignment; }

}  // namespace

void GgufWriter::AddScalar(std::string_view key, uint32_t type, const void* value,
                           size_t bytes) {
  keys_.push_back({.key = std::string(key),
                   .type = type,
                   .payload = std::string(static_cast<const char*>(value), bytes)});
}

void GgufWriter::AddArray(std::string_view key, uint32_t type, uint64_t count,
                          std::string payload) {
  keys_.push_back({.key = std::string(key),
                   .type = kArray,
                   .element_type = type,
                   .count = count,
                   .payload = std::move(payload)});
}

void GgufWriter::AddUint32(std::string_view key, uint32_t value) {
  AddScalar(key, kUint32, &value, sizeof value);
}
void GgufWriter::AddInt32(std::string_view key, int32_t value) {
  AddScalar(key, kInt32, &value, sizeof value);
}
void GgufWriter::AddUint8(std::string_view key, uint8_t value) {
  AddScalar(key, kUint8, &value, sizeof value);
}
void GgufWriter::AddUint64(std::string_view key, uint64_t value) {
  AddScalar(key, kUint64, &value, sizeof value);
}
void GgufWriter::AddFloat32(std::string_view key, float value) {
  AddScalar(key, kFloat32, &value, sizeof value);
}
void GgufWriter::AddBool(std::string_view key, bool value) {
  const uint8_t byte = value ? 1 : 0;
  AddScalar(key, kBool, &byte, sizeof byte);
}
void GgufWriter::AddString(std::string_view key, std::string_view value) {
  const std::string raw = RawString(value);
  AddScalar(key, kString, raw.data(), raw.size());
}
void GgufWriter::AddStrings(std::string_view key,
                            const std::vector<std::string>& values) {
  std::string payload;
  for (const std::string& value : values) payload += RawString(value);
  AddArray(key, kString, values.size(), std::move(payload));
}
void GgufWriter::AddInts(std::string_view key, const std::vector<int32_t>& values) {
  AddArray(key, kInt32, values.size(), Raw(values));
}
void GgufWriter::AddFloats(std::string_view key, const std::vector<float>& values) {
  AddArray(key, kFloat32, values.size(), Raw(values));
}
void GgufWriter::AddBytes(std::string_view key, const std::vector<uint8_t>& values) {
  AddArray(key, kUint8, values.size(), Raw(values));
}

void GgufWriter::Remove(std::string_view key) {
  std::erase_if(keys_, [&](const KeyValue& value) { return value.key == key; });
}

void GgufWriter::AddTensor(std::string_view name, uint32_t type,
                           std::vector<uint64_t> dims, std::vector<std::byte> data) {
  tensors_.push_back({.name = std::string(name),
                      .type = type,
                      .dims = std::move(dims),
                      .data = std::move(data)});
}

void GgufWriter::RemoveTensor(std::string_view name) {
  std::erase_if(tensors_, [&](const Tensor& tensor) { return tensor.name == name; });
}

template <class T>
void GgufWriter::Put(const std::string& field, T value) {
  fields_.push_back({.name = field, .offset = bytes_.size(), .bytes = sizeof value});
  const auto* raw = reinterpret_cast<const std::byte*>(&value);
  bytes_.insert(bytes_.end(), raw, raw + sizeof value);
}

void GgufWriter::PutString(const std::string& field, std::string_view text) {
  Put(field + ":length", static_cast<uint64_t>(text.size()));
  fields_.push_back({.name = field, .offset = bytes_.size(), .bytes = text.size()});
  const auto* raw = reinterpret_cast<const std::byte*>(text.data());
  bytes_.insert(bytes_.end(), raw, raw + text.size());
}

void GgufWriter::WriteKey(const KeyValue& key_value) {
  const std::string field = "key:" + key_value.key;
  PutString(field + ":name", key_value.key);
  Put(field + ":type", key_value.type);
  if (key_value.type == kArray) {
    Put(field + ":element_type", key_value.element_type);
    Put(field + ":count", key_value.count);
  }
  fields_.push_back({.name = field + ":value",
                     .offset = bytes_.size(),
                     .bytes = key_value.payload.size()});
  const auto* raw = reinterpret_cast<const std::byte*>(key_value.payload.data());
  bytes_.insert(bytes_.end(), raw, raw + key_value.payload.size());
}

void GgufWriter::WriteTensorInfo(const Tensor& tensor, uint64_t offset) {
  const std::string field = "tensor:" + tensor.name;
  PutString(field + ":name", tensor.name);
  Put(field + ":dimensions", static_cast<uint32_t>(tensor.dims.size()));
  for (size_t i = 0; i < tensor.dims.size(); ++i) {
    Put(field + ":dim" + std::to_string(i), tensor.dims[i]);
  }
  Put(field + ":type", tensor.type);
  Put(field + ":offset", offset);
}

std::vector<std::byte> GgufWriter::Finish() {
  bytes_.clear();
  fields_.clear();
  Put("magic", kMagic);
  Put("version", kVersion);
  Put("tensor_count", static_cast<uint64_t>(tensors_.size()));
  Put("key_count", static_cast<uint64_t>(keys_.size()));
  for (const KeyValue& key_value : keys_) WriteKey(key_value);
  uint64_t offset = 0;
  for (const Tensor& tensor : tensors_) {
    WriteTensorInfo(tensor, offset);
    offset += AlignUp(tensor.data.size());
  }
  for (const Tensor& tensor : tensors_) {
    bytes_.resize(AlignUp(bytes_.size()));
    fields_.push_back({.name = "tensor:" + tensor.name + ":data",
                       .offset = bytes_.size(),
                       .bytes = tensor.data.size()});
    bytes_.insert(bytes_.end(), tensor.data.begin(), tensor.data.end());
  }
  return std::move(bytes_);
}

const GgufField& GgufWriter::Field(std::string_view name) const {
  for (const GgufField& field : fields_) {
    if (field.name == name) return field;
  }
  std::fprintf(stderr, "no field %s\n", std::string(name).c_str());
  std::abort();
}

bool WriteFile(const std::string& path, const std::vector<std::byte>& bytes) {
  std::FILE* file = std::fopen(path.c_str(), "wb");
  if (file == nullptr) return false;
  const bool written = std::fwrite(bytes.data(), 1, bytes.size(), file) == bytes.size();
  return std::fclose(file) == 0 && written;
}

}  // namespace renga::test
