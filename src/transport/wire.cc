#include "transport/wire.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/stubs/logging.h>
#include <google/protobuf/unknown_field_set.h>
#include <grpcpp/support/proto_buffer_reader.h>
#include <grpcpp/support/slice.h>

#include <string>
#include <string_view>
#include <vector>

#include "base/log.h"

namespace renga {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

// Where protobuf's log lines of this thread go while it decodes.
thread_local std::string* decode_error = nullptr;

void ProtobufLog(google::protobuf::LogLevel level, const char* /*file*/, int /*line*/,
                 const std::string& message) {
  if (decode_error != nullptr) {
    *decode_error = message;
  } else if (level >= google::protobuf::LOGLEVEL_ERROR) {
    LogError("protobuf", {{"message", message}});
  }
}

// "String field 'renga.v1.ChatMessage.content' contains invalid UTF-8 data when ...":
// the part after the package, and for a field of `request` itself only its name; empty if
// the line says something else.
std::string FieldOfComplaint(std::string_view line, const Message& request) {
  if (line.find("invalid UTF-8") == std::string_view::npos) return "";
  const size_t begin = line.find('\'');
  if (begin == std::string_view::npos) return "";
  const size_t end = line.find('\'', begin + 1);
  if (end == std::string_view::npos) return "";
  std::string_view name = line.substr(begin + 1, end - begin - 1);
  constexpr std::string_view kPackage = "renga.v1.";
  const std::string own = request.GetDescriptor()->full_name() + '.';
  for (const std::string_view prefix : {std::string_view(own), kPackage}) {
    if (name.substr(0, prefix.size()) == prefix) name.remove_prefix(prefix.size());
  }
  return std::string(name);
}

std::string Join(const std::string& path, const std::string& name) {
  return path.empty() ? name : path + "." + name;
}

// `path` names `message` inside the request; "" for the request itself.
Status RefuseUnknownFields(const Message& message, const std::string& path) {
  const auto* reflection = message.GetReflection();
  const auto& unknown = reflection->GetUnknownFields(message);
  if (!unknown.empty()) {
    return InvalidArgument(path, "unknown field " +
                                     std::to_string(unknown.field(0).number()) + " of " +
                                     message.GetDescriptor()->full_name() +
                                     ": this server does not support it");
  }
  std::vector<const FieldDescriptor*> fields;
  reflection->ListFields(message, &fields);
  for (const FieldDescriptor* field : fields) {
    if (field->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE) continue;
    const std::string name = Join(path, field->name());
    if (!field->is_repeated()) {
      Status status = RefuseUnknownFields(reflection->GetMessage(message, field), name);
      if (!status.ok()) return status;
      continue;
    }
    for (int i = 0; i < reflection->FieldSize(message, field); ++i) {
      Status status =
          RefuseUnknownFields(reflection->GetRepeatedMessage(message, field, i),
                              name + "[" + std::to_string(i) + "]");
      if (!status.ok()) return status;
    }
  }
  return OkStatus();
}

}  // namespace

Status Decode(const grpc::ByteBuffer& bytes, Message& message) {
  grpc::ByteBuffer readable(bytes);  // The reader wants a mutable one; shares the slices.
  std::string complaint;
  bool decoded = false;
  {
    grpc::ProtoBufferReader reader(&readable);
    decode_error = &complaint;
    decoded = reader.status().ok() && message.ParseFromZeroCopyStream(&reader);
    decode_error = nullptr;
  }
  if (!decoded) {
    std::string field = FieldOfComplaint(complaint, message);
    if (!field.empty()) return InvalidArgument(std::move(field), "is not UTF-8");
    return Status(StatusCode::kInvalidArgument,
                  "the request is not a " + message.GetDescriptor()->full_name());
  }
  return RefuseUnknownFields(message, "");
}

grpc::ByteBuffer Encode(const Message& message) {
  const size_t bytes = message.ByteSizeLong();
  grpc::Slice slice(bytes);
  message.SerializeWithCachedSizesToArray(const_cast<uint8_t*>(slice.begin()));
  return grpc::ByteBuffer(&slice, 1);
}

void CaptureProtobufErrors() {
  static const bool done = [] {
    google::protobuf::SetLogHandler(&ProtobufLog);
    return true;
  }();
  static_cast<void>(done);
}

}  // namespace renga
