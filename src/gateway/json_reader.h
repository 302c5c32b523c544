// Reading the JSON of a client: the text as a whole, then field by field.
//
// Everything here is strict: no key twice, nothing nested deeper than 32, no more than
// 2^20 values, nothing that is not UTF-8, no half of a surrogate pair; a number in quotes
// is no number. null is the same as absent. Each refusal names the field by its path:
// "messages[0].content".
//
// Thread safety: ParseJson may be called from any thread; a FieldReader belongs to one.

#pragma once

#include <boost/json/value.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "renga/status.h"

namespace renga {

// The value that `text` is; it must be an object.
StatusOr<boost::json::object> ParseJson(std::string_view text);

// "messages[3]".
std::string ElementName(std::string_view field, size_t index);

// The fields of one object. Reading a field makes it known; the first thing that is wrong
// is kept, and everything read after it is absent.
class FieldReader {
 public:
  // `path` stands before the names in messages: "stream_options."; the object must
  // outlive the reader.
  explicit FieldReader(const boost::json::object& object, std::string path = "")
      : object_(object), path_(std::move(path)) {}

  // The field as it is; nullptr if it is absent or null, or something is wrong already.
  const boost::json::value* Find(std::string_view name);

  std::optional<bool> Bool(std::string_view name);
  std::optional<std::string> String(std::string_view name);
  // Finite in 32 bits.
  std::optional<float> Float(std::string_view name);
  // A number without a fraction (8.0 will do). What is beyond the limits becomes the
  // limit.
  std::optional<int64_t> Integer(std::string_view name);
  std::optional<int32_t> Integer32(std::string_view name);

  // A field that this server does not have: absent, or a value that asks for nothing:
  // false, an empty list or object, or the text `neutral`.
  void Unsupported(std::string_view name, std::string_view neutral = {});

  // Keeps the first failure.
  void Refuse(std::string_view name, std::string_view message);
  void Keep(Status status);

  const Status& status() const { return status_; }
  // The first failure; else the first field that nobody has read, unless `lenient`.
  Status Finish(bool lenient) const;

 private:
  const boost::json::object& object_;
  const std::string path_;
  std::vector<std::string_view> known_;
  Status status_;
};

// One value; `field` is its whole path.
StatusOr<int64_t> ReadInteger(const boost::json::value& value, std::string field);
StatusOr<int32_t> ReadTokenId(const boost::json::value& value, std::string field);
StatusOr<float> ReadFloat(const boost::json::value& value, std::string field);
StatusOr<std::string> ReadString(const boost::json::value& value, std::string field);

}  // namespace renga
