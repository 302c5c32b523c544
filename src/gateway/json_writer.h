// JsonWriter: JSON text, piece by piece.
//
// Invariants: whatever bytes a string has, the output is UTF-8 (what is not becomes
// U+FFFD); numbers are the shortest that read back the same; there are no infinities.
//
// Thread safety: none.

#pragma once

#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

namespace renga {

// Whether all of `bytes` is UTF-8.
bool IsUtf8(std::string_view bytes);

class JsonWriter {
 public:
  JsonWriter& BeginObject() { return Open('{'); }
  JsonWriter& EndObject() { return Close('}'); }
  JsonWriter& BeginArray() { return Open('['); }
  JsonWriter& EndArray() { return Close(']'); }

  // Before a value inside an object.
  JsonWriter& Key(std::string_view key);

  JsonWriter& String(std::string_view value);
  JsonWriter& Int(int64_t value);
  // NaN and infinities: null.
  JsonWriter& Double(double value);
  JsonWriter& Float(float value);
  JsonWriter& Bool(bool value);
  JsonWriter& Null();
  // A value that is JSON already.
  JsonWriter& Raw(std::string_view json);

  // Key and value in one.
  JsonWriter& Field(std::string_view key, std::string_view value) {
    return Key(key).String(value);
  }
  JsonWriter& Field(std::string_view key, const char* value) {
    return Key(key).String(value);
  }
  template <std::integral Integer>
  JsonWriter& Field(std::string_view key, Integer value) {
    if constexpr (std::same_as<Integer, bool>) {
      return Key(key).Bool(value);
    } else {
      return Key(key).Int(static_cast<int64_t>(value));
    }
  }
  JsonWriter& Field(std::string_view key, double value) { return Key(key).Double(value); }
  JsonWriter& NullField(std::string_view key) { return Key(key).Null(); }

  std::string Take() && { return std::move(out_); }

 private:
  JsonWriter& Open(char bracket);
  JsonWriter& Close(char bracket);
  void Separate();  // A comma, if a value stands before.
  void AppendString(std::string_view value);

  std::string out_;
  bool after_value_ = false;
};

}  // namespace renga
