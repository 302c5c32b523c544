#include "transport/status_mapping.h"

#include <algorithm>
#include <chrono>
#include <string>
#include <string_view>

#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"

namespace renga {
namespace {

grpc::StatusCode ToGrpcCode(StatusCode code) {
  switch (code) {
    case StatusCode::kOk:
      return grpc::StatusCode::OK;
    case StatusCode::kCancelled:
      return grpc::StatusCode::CANCELLED;
    case StatusCode::kUnknown:
      return grpc::StatusCode::UNKNOWN;
    case StatusCode::kInvalidArgument:
      return grpc::StatusCode::INVALID_ARGUMENT;
    case StatusCode::kDeadlineExceeded:
      return grpc::StatusCode::DEADLINE_EXCEEDED;
    case StatusCode::kNotFound:
      return grpc::StatusCode::NOT_FOUND;
    case StatusCode::kAlreadyExists:
      return grpc::StatusCode::ALREADY_EXISTS;
    case StatusCode::kPermissionDenied:
      return grpc::StatusCode::PERMISSION_DENIED;
    case StatusCode::kResourceExhausted:
      return grpc::StatusCode::RESOURCE_EXHAUSTED;
    case StatusCode::kFailedPrecondition:
      return grpc::StatusCode::FAILED_PRECONDITION;
    case StatusCode::kAborted:
      return grpc::StatusCode::ABORTED;
    case StatusCode::kOutOfRange:
      return grpc::StatusCode::OUT_OF_RANGE;
    case StatusCode::kUnimplemented:
      return grpc::StatusCode::UNIMPLEMENTED;
    case StatusCode::kInternal:
      return grpc::StatusCode::INTERNAL;
    case StatusCode::kUnavailable:
      return grpc::StatusCode::UNAVAILABLE;
    case StatusCode::kDataLoss:
      return grpc::StatusCode::DATA_LOSS;
    case StatusCode::kUnauthenticated:
      return grpc::StatusCode::UNAUTHENTICATED;
  }
  return grpc::StatusCode::UNKNOWN;
}

// In the header each byte may take three, and the details hold the text twice more.
constexpr size_t kMaxMessageBytes = 1000;

// At most kMaxMessageBytes, cut before a whole UTF-8 character.
std::string Shorten(std::string text) {
  if (text.size() <= kMaxMessageBytes) return text;
  constexpr std::string_view kMark = "...";
  size_t end = kMaxMessageBytes - kMark.size();
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  text.resize(end);
  return text.append(kMark);
}

google::rpc::RetryInfo ToRetryInfo(Duration delay) {
  const Duration wait = std::max(delay, Duration::zero());
  const auto whole = std::chrono::duration_cast<std::chrono::seconds>(wait);
  google::rpc::RetryInfo info;
  info.mutable_retry_delay()->set_seconds(whole.count());
  info.mutable_retry_delay()->set_nanos(static_cast<int32_t>((wait - whole).count()));
  return info;
}

// A serialised google.rpc.Status; empty if there is nothing to say beside the message.
std::string DetailsOf(const Status& status, const std::string& message) {
  google::rpc::Status details;
  if (status.retry_after()) {
    details.add_details()->PackFrom(ToRetryInfo(*status.retry_after()));
  }
  if (status.code() == StatusCode::kInvalidArgument && !status.field().empty()) {
    google::rpc::BadRequest bad;
    google::rpc::BadRequest::FieldViolation& violation = *bad.add_field_violations();
    violation.set_field(status.field());
    violation.set_description(Shorten(status.message()));
    details.add_details()->PackFrom(bad);
  }
  if (details.details().empty()) return "";
  details.set_code(ToGrpcCode(status.code()));
  details.set_message(message);
  return details.SerializeAsString();
}

}  // namespace

grpc::Status ToGrpcStatus(const Status& status) {
  if (status.ok()) return grpc::Status::OK;
  std::string message;
  if (!status.field().empty()) message = status.field() + ": ";
  message = Shorten(message + status.message());
  return grpc::Status(ToGrpcCode(status.code()), message, DetailsOf(status, message));
}

}  // namespace renga
