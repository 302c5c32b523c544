// GgufWriter: builds the bytes of a GGUF file, field by field, for tests.
//
// It shares nothing with src/formats, so that a reader and a writer with the same mistake
// do not agree. It can also say where each field went, so that tests can damage one.
//
// Thread safety: none.

#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace renga::test {

// Where one field lies in the file: "tensor_count", "key:llama.block_count:type",
// "tensor:output_norm.weight:offset", ...
struct GgufField {
  std::string name;
  size_t offset = 0;
  size_t bytes = 0;
};

class GgufWriter {
 public:
  void AddUint32(std::string_view key, uint32_t value);
  void AddInt32(std::string_view key, int32_t value);
  void AddUint8(std::string_view key, uint8_t value);
  void AddUint64(std::string_view key, uint64_t value);
  void AddFloat32(std::string_view key, float value);
  void AddBool(std::string_view key, bool value);
  void AddString(std::string_view key, std::string_view value);
  void AddStrings(std::string_view key, const std::vector<std::string>& values);
  void AddInts(std::string_view key, const std::vector<int32_t>& values);
  void AddFloats(std::string_view key, const std::vector<float>& values);
  void AddBytes(std::string_view key, const std::vector<uint8_t>& values);
  // Removes a key that was added; the next Finish writes the file without it.
  void Remove(std::string_view key);

  // dims[0] is the innermost. `type` is the format's number.
  void AddTensor(std::string_view name, uint32_t type, std::vector<uint64_t> dims,
                 std::vector<std::byte> data);
  void RemoveTensor(std::string_view name);

  // The whole file. The list of its fields is that of the last call.
  std::vector<std::byte> Finish();
  const std::vector<GgufField>& fields() const { return fields_; }
  // The field of that name; ends the test program if there is none.
  const GgufField& Field(std::string_view name) const;

 private:
  struct KeyValue {
    std::string key;
    uint32_t type = 0;
    uint32_t element_type = 0;  // For arrays (type 9).
    uint64_t count = 0;
    std::string payload;
  };
  struct Tensor {
    std::string name;
    uint32_t type = 0;
    std::vector<uint64_t> dims;
    std::vector<std::byte> data;
  };

  void AddScalar(std::string_view key, uint32_t type, const void* value, size_t bytes);
  void AddArray(std::string_view key, uint32_t type, uint64_t count, std::string payload);
  void WriteKey(const KeyValue& key_value);
  void WriteTensorInfo(const Tensor& tensor, uint64_t offset);
  template <class T>
  void Put(const std::string& field, T value);
  void PutString(const std::string& field, std::string_view text);

  std::vector<KeyValue> keys_;
  std::vector<Tensor> tensors_;
  std::vector<std::byte> bytes_;  // Of the Finish in progress.
  std::vector<GgufField> fields_;
};

// Writes the bytes to a file; false if that failed.
bool WriteFile(const std::string& path, const std::vector<std::byte>& bytes);

}  // namespace renga::test
