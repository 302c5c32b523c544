#include "gateway/json_reader.h"

#include <algorithm>
#include <boost/json/basic_parser_impl.hpp>
#include <boost/json/value_stack.hpp>
#include <cmath>
#include <limits>
#include <unordered_set>
#include <utility>

#include "base/status_macros.h"

namespace renga {
namespace {

namespace json = boost::json;
using json::error_code;
using json::string_view;

constexpr size_t kMaxDepth = 32;
// Of one object. The largest with a meaning is logit_bias, with 1024.
constexpr size_t kMaxKeys = 4096;
// Of a document: each costs many times its two bytes. More than any prompt has tokens.
constexpr size_t kMaxValues = 1 << 20;
// Of a foreign name in a message.
constexpr size_t kMaxShownName = 64;

std::string Shown(std::string_view name) {
  return std::string(name.substr(0, kMaxShownName));
}

// Builds the value, and knows at every moment where in the document it is.
class DocumentHandler {
 public:
  static constexpr size_t max_object_size = json::object::max_size();  // NOLINT
  static constexpr size_t max_array_size = json::array::max_size();    // NOLINT
  static constexpr size_t max_key_size = json::string::max_size();     // NOLINT
  static constexpr size_t max_string_size = json::string::max_size();  // NOLINT

  DocumentHandler() { stack_.reset(); }

  json::value Release() { return stack_.release(); }
  // Not OK: why the document was refused by this class.
  const Status& refusal() const { return refusal_; }
  // "messages[0].content"; empty at the top.
  std::string Path() const;

  // What basic_parser calls; the names are its own.
  // NOLINTBEGIN(readability-identifier-naming)
  bool on_document_begin(error_code&) { return true; }
  bool on_document_end(error_code&) { return true; }
  bool on_object_begin(error_code&) {
    places_.push_back({.in_object = true});
    return true;
  }
  bool on_object_end(size_t n, error_code& error) {
    places_.pop_back();
    stack_.push_object(n);
    return ValueEnds(error);
  }
  bool on_array_begin(error_code&) {
    places_.push_back({.in_object = false});
    return true;
  }
  bool on_array_end(size_t n, error_code& error) {
    places_.pop_back();
    stack_.push_array(n);
    return ValueEnds(error);
  }
  bool on_key_part(string_view s, size_t, error_code&) {
    part_.append(s.data(), s.size());
    stack_.push_chars(s);
    return true;
  }
  bool on_key(string_view s, size_t, error_code& error) {
    stack_.push_key(s);
    part_.append(s.data(), s.size());
    return KeyEnds(error);
  }
  bool on_string_part(string_view s, size_t, error_code&) {
    stack_.push_chars(s);
    return true;
  }
  bool on_string(string_view s, size_t, error_code& error) {
    stack_.push_string(s);
    return ValueEnds(error);
  }
  bool on_number_part(string_view, error_code&) { return true; }
  bool on_int64(int64_t i, string_view, error_code& error) {
    stack_.push_int64(i);
    return ValueEnds(error);
  }
  bool on_uint64(uint64_t u, string_view, error_code& error) {
    stack_.push_uint64(u);
    return ValueEnds(error);
  }
  bool on_double(double d, string_view, error_code& error) {
    stack_.push_double(d);
    return ValueEnds(error);
  }
  bool on_bool(bool b, error_code& error) {
    stack_.push_bool(b);
    return ValueEnds(error);
  }
  bool on_null(error_code& error) {
    stack_.push_null();
    return ValueEnds(error);
  }
  bool on_comment_part(string_view, error_code&) { return true; }
  bool on_comment(string_view, error_code&) { return true; }
  // NOLINTEND(readability-identifier-naming)

 private:
  // An object or a list that is not complete.
  struct Place {
    bool in_object = false;
    size_t index = 0;   // Of the list's element being read.
    std::string key{};  // Of the object's value being read.
    std::unordered_set<std::string> keys{};
  };

  bool Refuse(std::string message, error_code& error) {
    refusal_ = InvalidArgument(Path(), std::move(message));
    error = json::error::extra_data;  // Any error; refusal_ says more.
    return false;
  }
  bool ValueEnds(error_code& error) {
    if (++values_ > kMaxValues) {
      if (!places_.empty()) places_.resize(1);
      return Refuse("the body has more than " + std::to_string(kMaxValues) + " values",
                    error);
    }
    if (!places_.empty() && !places_.back().in_object) ++places_.back().index;
    return true;
  }
  bool KeyEnds(error_code& error) {
    Place& place = places_.back();
    place.key = std::exchange(part_, {});
    if (!place.keys.insert(place.key).second) return Refuse("is given twice", error);
    if (place.keys.size() <= kMaxKeys) return true;
    place.key.clear();
    return Refuse("has more than " + std::to_string(kMaxKeys) + " fields", error);
  }

  json::value_stack stack_;
  std::vector<Place> places_;
  size_t values_ = 0;  // Complete ones.
  std::string part_;   // Of a key.
  Status refusal_;
};

std::string DocumentHandler::Path() const {
  std::string path;
  for (const Place& place : places_) {
    if (!place.in_object) {
      path += '[' + std::to_string(place.index) + ']';
    } else if (!place.key.empty()) {
      if (!path.empty()) path += '.';
      path += Shown(place.key);
    }
  }
  return path;
}

}  // namespace

StatusOr<json::object> ParseJson(std::string_view text) {
  json::parse_options options;
  options.max_depth = kMaxDepth;
  json::basic_parser<DocumentHandler> parser(options);
  error_code error;
  const size_t used = parser.write_some(false, text.data(), text.size(), error);
  if (!parser.handler().refusal().ok()) return parser.handler().refusal();
  if (error) {
    return InvalidArgument(parser.handler().Path(),
                           "the body is not valid JSON: " + error.message() +
                               " at byte " + std::to_string(used));
  }
  if (used < text.size()) {
    return InvalidArgument(
        "", "the body has something behind its JSON, at byte " + std::to_string(used));
  }
  json::value value = parser.handler().Release();
  if (!value.is_object()) return InvalidArgument("", "the body must be a JSON object");
  return std::move(value.get_object());
}

std::string ElementName(std::string_view field, size_t index) {
  return std::string(field) + '[' + std::to_string(index) + ']';
}

StatusOr<int64_t> ReadInteger(const json::value& value, std::string field) {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  constexpr int64_t kLeast = std::numeric_limits<int64_t>::min();
  if (value.is_int64()) return value.get_int64();
  if (value.is_uint64()) return kMost;  // Only what an int64_t has no room for.
  if (!value.is_double()) return InvalidArgument(std::move(field), "must be an integer");
  const double number = value.get_double();
  if (std::trunc(number) != number) {  // Also NaN.
    return InvalidArgument(std::move(field), "must be an integer, without a fraction");
  }
  // 2^63 is a double, the largest int64_t is none.
  if (number >= 0x1p63) return kMost;
  if (number < -0x1p63) return kLeast;
  return static_cast<int64_t>(number);
}

StatusOr<int32_t> ReadTokenId(const json::value& value, std::string field) {
  RENGA_ASSIGN_OR_RETURN(const int64_t id, ReadInteger(value, field));
  if (id < 0 || id > std::numeric_limits<int32_t>::max()) {
    return InvalidArgument(std::move(field), "is no token id of this model");
  }
  return static_cast<int32_t>(id);
}

StatusOr<float> ReadFloat(const json::value& value, std::string field) {
  double number = 0.0;
  if (value.is_double()) {
    number = value.get_double();
  } else if (value.is_int64()) {
    number = static_cast<double>(value.get_int64());
  } else if (value.is_uint64()) {
    number = static_cast<double>(value.get_uint64());
  } else {
    return InvalidArgument(std::move(field), "must be a number");
  }
  if (!(std::fabs(number) <= std::numeric_limits<float>::max())) {
    return InvalidArgument(std::move(field), "is out of range");
  }
  return static_cast<float>(number);
}

StatusOr<std::string> ReadString(const json::value& value, std::string field) {
  if (!value.is_string()) return InvalidArgument(std::move(field), "must be a string");
  return std::string(value.get_string());
}

const json::value* FieldReader::Find(std::string_view name) {
  known_.push_back(name);
  if (!status_.ok()) return nullptr;
  const json::value* value = object_.if_contains({name.data(), name.size()});
  return value == nullptr || value->is_null() ? nullptr : value;
}

std::optional<bool> FieldReader::Bool(std::string_view name) {
  const json::value* value = Find(name);
  if (value == nullptr) return std::nullopt;
  if (value->is_bool()) return value->get_bool();
  Refuse(name, "must be true or false");
  return std::nullopt;
}

namespace {

// The value, or nothing, and the reason kept.
template <class T>
std::optional<T> ValueOrKeep(FieldReader& reader, StatusOr<T> value) {
  if (value.ok()) return *std::move(value);
  reader.Keep(value.status());
  return std::nullopt;
}

}  // namespace

std::optional<std::string> FieldReader::String(std::string_view name) {
  const json::value* value = Find(name);
  if (value == nullptr) return std::nullopt;
  return ValueOrKeep(*this, ReadString(*value, path_ + std::string(name)));
}

std::optional<float> FieldReader::Float(std::string_view name) {
  const json::value* value = Find(name);
  if (value == nullptr) return std::nullopt;
  return ValueOrKeep(*this, ReadFloat(*value, path_ + std::string(name)));
}

std::optional<int64_t> FieldReader::Integer(std::string_view name) {
  const json::value* value = Find(name);
  if (value == nullptr) return std::nullopt;
  return ValueOrKeep(*this, ReadInteger(*value, path_ + std::string(name)));
}

std::optional<int32_t> FieldReader::Integer32(std::string_view name) {
  const std::optional<int64_t> value = Integer(name);
  if (!value) return std::nullopt;
  return static_cast<int32_t>(std::clamp<int64_t>(
      *value, std::numeric_limits<int32_t>::min(), std::numeric_limits<int32_t>::max()));
}

void FieldReader::Unsupported(std::string_view name, std::string_view neutral) {
  const json::value* value = Find(name);
  if (value == nullptr) return;
  const bool nothing = (value->is_bool() && !value->get_bool()) ||
                       (value->is_array() && value->get_array().empty()) ||
                       (value->is_object() && value->get_object().empty()) ||
                       (!neutral.empty() && value->is_string() &&
                        std::string_view(value->get_string()) == neutral);
  if (!nothing) Refuse(name, "is not supported by this server");
}

void FieldReader::Refuse(std::string_view name, std::string_view message) {
  Keep(InvalidArgument(path_ + std::string(name), std::string(message)));
}

void FieldReader::Keep(Status status) {
  if (status_.ok()) status_ = std::move(status);
}

Status FieldReader::Finish(bool lenient) const {
  if (!status_.ok() || lenient) return status_;
  for (const auto& field : object_) {
    const std::string_view name(field.key().data(), field.key().size());
    if (std::find(known_.begin(), known_.end(), name) == known_.end()) {
      return InvalidArgument(path_ + Shown(name), "is not a field of this API");
    }
  }
  return OkStatus();
}

}  // namespace renga
