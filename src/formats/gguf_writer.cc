#include "formats/gguf_writer.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/status_macros.h"
#include "formats/ggml_type.h"
#include "formats/gguf_parser.h"

namespace renga {
namespace {

constexpr uint32_t kMagic = 0x46554747;  // "GGUF"
constexpr uint32_t kVersion = 3;
constexpr std::string_view kAlignmentKey = "general.alignment";

template <class T>
void Append(std::string& bytes, T value) {
  bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
}

void AppendString(std::string& bytes, std::string_view text) {
  Append(bytes, static_cast<uint64_t>(text.size()));
  bytes.append(text);
}

// Bytes of a value's elements as they lie in the file.
size_t ValueBytes(const GgufValue& value) {
  if (value.type != GgufType::kString) return value.count * GgufScalarBytes(value.type);
  const std::byte* end = value.data;
  for (uint64_t i = 0; i < value.count; ++i) {
    uint64_t length = 0;
    std::memcpy(&length, end, sizeof length);
    end += sizeof length + length;
  }
  return static_cast<size_t>(end - value.data);
}

int64_t TensorBytes(uint32_t ggml_type, const std::vector<int64_t>& dims) {
  const GgmlTypeInfo* info = FindGgmlType(ggml_type);
  RENGA_CHECK(info != nullptr && dims[0] % info->block_values == 0);
  int64_t bytes = dims[0] / info->block_values * info->block_bytes;
  for (size_t i = 1; i < dims.size(); ++i) bytes *= dims[i];
  return bytes;
}

}  // namespace

void GgufWriter::CopyKeys(const GgufFile& file,
                          std::span<const std::string_view> without) {
  std::vector<std::pair<std::string_view, const GgufValue*>> keys;
  for (const std::string_view key : file.Keys()) {
    if (std::find(without.begin(), without.end(), key) != without.end()) continue;
    keys.emplace_back(key, file.FindValue(key));
  }
  std::sort(keys.begin(), keys.end(), [](const auto& a, const auto& b) {
    return a.second->data < b.second->data;  // The file's own order.
  });
  for (const auto& [key, value] : keys) {
    AppendString(key_bytes_, key);
    if (value->is_array) Append(key_bytes_, GgufType::kArray);
    Append(key_bytes_, value->type);
    if (value->is_array) Append(key_bytes_, value->count);
    key_bytes_.append(reinterpret_cast<const char*>(value->data), ValueBytes(*value));
    ++keys_;
    if (key == kAlignmentKey) alignment_ = static_cast<int64_t>(*file.GetUint(key));
  }
}

void GgufWriter::AddUint32(std::string_view key, uint32_t value) {
  AppendString(key_bytes_, key);
  Append(key_bytes_, GgufType::kUint32);
  Append(key_bytes_, value);
  ++keys_;
}

void GgufWriter::AddTensor(std::string_view name, uint32_t ggml_type,
                           std::vector<int64_t> dims) {
  const int64_t bytes = TensorBytes(ggml_type, dims);
  tensors_.push_back({.name = std::string(name),
                      .type = ggml_type,
                      .dims = std::move(dims),
                      .bytes = bytes});
}

std::string GgufWriter::Header() const {
  std::string bytes;
  Append(bytes, kMagic);
  Append(bytes, kVersion);
  Append(bytes, static_cast<uint64_t>(tensors_.size()));
  Append(bytes, keys_);
  bytes += key_bytes_;
  int64_t offset = 0;
  for (const Tensor& tensor : tensors_) {
    AppendString(bytes, tensor.name);
    Append(bytes, static_cast<uint32_t>(tensor.dims.size()));
    for (const int64_t dim : tensor.dims) Append(bytes, dim);
    Append(bytes, tensor.type);
    Append(bytes, offset);
    offset += Aligned(tensor.bytes);
  }
  bytes.resize(static_cast<size_t>(Aligned(static_cast<int64_t>(bytes.size()))));
  return bytes;
}

int64_t GgufWriter::FileBytes() const {
  int64_t bytes = static_cast<int64_t>(Header().size());
  for (const Tensor& tensor : tensors_) bytes += Aligned(tensor.bytes);
  return bytes;
}

Status GgufWriter::Begin(OutputFile& out) {
  out_ = &out;
  RENGA_RETURN_IF_ERROR(out_->Reserve(FileBytes()));
  const std::string header = Header();
  return out_->Write(std::as_bytes(std::span(header)));
}

Status GgufWriter::Write(std::span<const std::byte> bytes) {
  RENGA_CHECK(tensor_ < tensors_.size());
  const int64_t wanted = tensors_[tensor_].bytes;
  written_ += static_cast<int64_t>(bytes.size());
  RENGA_CHECK(written_ <= wanted);
  RENGA_RETURN_IF_ERROR(out_->Write(bytes));
  if (written_ < wanted) return OkStatus();
  const std::string padding(static_cast<size_t>(Aligned(wanted) - wanted), '\0');
  ++tensor_;
  written_ = 0;
  return out_->Write(std::as_bytes(std::span(padding)));
}

Status GgufWriter::Finish() {
  RENGA_CHECK(tensor_ == tensors_.size());
  return out_->Commit();
}

}  // namespace renga
