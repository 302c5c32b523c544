// GgufFile: a checked, read-only view of one GGUF model file (versions 2 and 3, little
// endian).
//
// The file is untrusted. Open checks every count, length, type, dimension and offset
// against the bytes that are left in the file before it is used, and that every tensor
// lies inside the file; afterwards no accessor can read outside the mapping. Values stay
// where they are: a key or a string of a large vocabulary is a view into the file, so
// opening costs a few dozen bytes per key and tensor.
//
// Refused: keys or tensor names that come twice, arrays of arrays, element types that do
// not exist, dimensions of 0, big-endian files. Errors name the file (base name only),
// the key or tensor, and the numbers that do not fit.
//
// Thread safety: immutable after Open; any thread may read.

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "formats/mapped_file.h"
#include "renga/status.h"

namespace renga {

struct GgufTensor {
  std::string name;
  uint32_t ggml_type = 0;
  std::vector<int64_t> dims;  // dims[0] is the innermost one (columns); 1 to 4, each > 0.
  const std::byte* data = nullptr;
  size_t bytes = 0;
};

// The numbers that the format uses for the types of values.
enum class GgufType : uint32_t {
  kUint8 = 0,
  kInt8 = 1,
  kUint16 = 2,
  kInt16 = 3,
  kUint32 = 4,
  kInt32 = 5,
  kFloat32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9,
  kUint64 = 10,
  kInt64 = 11,
  kFloat64 = 12,
};

// One value as it lies in the file. A scalar has count 1; strings are stored as a 64-bit
// length and the bytes, one after another.
struct GgufValue {
  GgufType type = GgufType::kUint8;  // Of the elements, for an array.
  bool is_array = false;
  uint64_t count = 1;
  const std::byte* data = nullptr;
};

// What the parser found.
struct GgufContents {
  uint32_t version = 0;
  std::unordered_map<std::string_view, GgufValue> values;
  std::vector<GgufTensor> tensors;
  std::unordered_map<std::string_view, size_t> tensor_index;  // Keys view into the file.
};

class GgufFile {
 public:
  static StatusOr<std::unique_ptr<GgufFile>> Open(const std::string& path);
  // The same over bytes that outlive the result (tests, fuzzing). `name` is for errors.
  static StatusOr<std::unique_ptr<GgufFile>> FromBytes(std::string name,
                                                       std::span<const std::byte> bytes);

  const std::string& name() const { return name_; }  // Base name of the file.

  // A missing key is NOT_FOUND, a wrong type INVALID_ARGUMENT with the key as field.
  bool Has(std::string_view key) const;
  StatusOr<std::string_view> GetString(std::string_view key) const;
  StatusOr<uint64_t> GetUint(std::string_view key) const;  // Any integer type, >= 0.
  StatusOr<double> GetFloat(std::string_view key) const;   // 32 or 64 bits.
  StatusOr<bool> GetBool(std::string_view key) const;
  StatusOr<std::vector<std::string_view>> GetStrings(std::string_view key) const;
  // Integers of 32 or 64 bits.
  StatusOr<std::vector<int64_t>> GetInts(std::string_view key) const;
  StatusOr<std::vector<float>> GetFloats(std::string_view key) const;  // 32 bits.
  // Elements of an array of any type: to be compared before an array is copied out.
  StatusOr<uint64_t> GetArrayLength(std::string_view key) const;
  // The value as it lies in the file; nullptr: there is no such key.
  const GgufValue* FindValue(std::string_view key) const;
  // All keys, in no order.
  std::vector<std::string_view> Keys() const;

  std::span<const GgufTensor> tensors() const { return contents_.tensors; }
  const GgufTensor* FindTensor(std::string_view name) const;

  // Gives resident pages back after the weights were copied out; the file stays usable.
  void ReleasePages() const { mapping_.ReleasePages(); }

 private:
  GgufFile(std::string name, MappedFile mapping, GgufContents contents)
      : name_(std::move(name)),
        mapping_(std::move(mapping)),
        contents_(std::move(contents)) {}

  StatusOr<const GgufValue*> Find(std::string_view key, bool is_array) const;
  Status WrongType(std::string_view key, const GgufValue& value,
                   const char* wanted) const;

  std::string name_;
  MappedFile mapping_;  // Empty for FromBytes.
  GgufContents contents_;
};

}  // namespace renga
