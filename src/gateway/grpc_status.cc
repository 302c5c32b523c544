#include "gateway/grpc_status.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "gateway/openai_request.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"

namespace renga {
namespace {

// The field that a message begins with: "top_p: must be ..." -> "top_p".
std::string_view FieldOf(std::string_view message) {
  const size_t colon = message.find(": ");
  if (colon == std::string_view::npos) return {};
  const std::string_view field = message.substr(0, colon);
  const bool is_name = std::all_of(field.begin(), field.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == '-' ||
           c == '.' || c == '[' || c == ']';
  });
  return is_name ? field : std::string_view();
}

std::optional<Duration> RetryDelay(const std::string& details) {
  google::rpc::Status rich;
  if (details.empty() || !rich.ParseFromString(details)) return std::nullopt;
  for (const google::protobuf::Any& detail : rich.details()) {
    google::rpc::RetryInfo info;
    if (!detail.UnpackTo(&info)) continue;
    return std::chrono::seconds(info.retry_delay().seconds()) +
           std::chrono::nanoseconds(info.retry_delay().nanos());
  }
  return std::nullopt;
}

}  // namespace

Status FromGrpcStatus(const grpc::Status& status) {
  if (status.ok()) return OkStatus();
  // The codes are gRPC's own, number by number.
  const int number = status.error_code();
  const StatusCode code =
      number > 0 && number <= 16 ? static_cast<StatusCode>(number) : StatusCode::kUnknown;
  std::string message = status.error_message();
  if (code == StatusCode::kUnavailable) {
    // gRPC's own text would name addresses behind the gateway.
    return Unavailable(
        "the model is not ready: its server starts, shuts down or cannot be reached");
  }
  // gRPC's own text. It does not get better by trying again.
  if (code == StatusCode::kResourceExhausted &&
      message.find("message larger than max") != message.npos) {
    return InvalidArgument("", "the request is larger than the server takes");
  }
  std::string field;
  if (code == StatusCode::kInvalidArgument) {
    const std::string_view native = FieldOf(message);
    field = OpenAiFieldName(native);
    if (!native.empty()) message.erase(0, native.size() + 2);
  }
  Status result = Status(code, std::move(message)).WithField(std::move(field));
  if (const auto delay = RetryDelay(status.error_details())) {
    result = std::move(result).WithRetryAfter(*delay);
  }
  return result;
}

}  // namespace renga
