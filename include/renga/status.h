// Status and StatusOr: how every module reports a failure that is not a bug.
//
// Codes and their names are those of gRPC (and absl). Beside a message, a status may
// carry the name of the request field that is wrong and a hint when to try again.
// Messages reach clients: no paths of the server, no prompt text, no keys.
//
// std only, so that the engine builds on a bare machine (no absl).

#pragma once

#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "renga/types.h"

namespace renga {

enum class StatusCode {
  kOk = 0,
  kCancelled = 1,
  kUnknown = 2,
  kInvalidArgument = 3,
  kDeadlineExceeded = 4,
  kNotFound = 5,
  kAlreadyExists = 6,
  kPermissionDenied = 7,
  kResourceExhausted = 8,
  kFailedPrecondition = 9,
  kAborted = 10,
  kOutOfRange = 11,
  kUnimplemented = 12,
  kInternal = 13,
  kUnavailable = 14,
  kDataLoss = 15,
  kUnauthenticated = 16,
};

// "INVALID_ARGUMENT" and so on, as gRPC spells them.
std::string_view StatusCodeName(StatusCode code);

class [[nodiscard]] Status {
 public:
  Status() = default;  // OK.
  Status(StatusCode code, std::string message)
      : code_(code), message_(std::move(message)) {}

  bool ok() const { return code_ == StatusCode::kOk; }
  StatusCode code() const { return code_; }
  const std::string& message() const { return message_; }

  // The request, config or file field that is wrong, as its user spells it; may be empty.
  const std::string& field() const { return field_; }
  // When the same call may succeed; set on overload only.
  const std::optional<Duration>& retry_after() const { return retry_after_; }

  Status WithField(std::string field) && {
    field_ = std::move(field);
    return std::move(*this);
  }
  Status WithRetryAfter(Duration delay) && {
    retry_after_ = delay;
    return std::move(*this);
  }

  // "INVALID_ARGUMENT: top_p: must be in [0, 1]"; "OK".
  std::string ToString() const;

  friend bool operator==(const Status& a, const Status& b) {
    return a.code_ == b.code_ && a.message_ == b.message_ && a.field_ == b.field_;
  }

 private:
  StatusCode code_ = StatusCode::kOk;
  std::string message_;
  std::string field_;
  std::optional<Duration> retry_after_;
};

inline Status OkStatus() { return Status(); }
inline Status InvalidArgument(std::string field, std::string message) {
  return Status(StatusCode::kInvalidArgument, std::move(message))
      .WithField(std::move(field));
}
inline Status NotFound(std::string message) {
  return Status(StatusCode::kNotFound, std::move(message));
}
inline Status ResourceExhausted(std::string message) {
  return Status(StatusCode::kResourceExhausted, std::move(message));
}
inline Status Cancelled(std::string message) {
  return Status(StatusCode::kCancelled, std::move(message));
}
inline Status DeadlineExceeded(std::string message) {
  return Status(StatusCode::kDeadlineExceeded, std::move(message));
}
inline Status FailedPrecondition(std::string message) {
  return Status(StatusCode::kFailedPrecondition, std::move(message));
}
inline Status Unimplemented(std::string message) {
  return Status(StatusCode::kUnimplemented, std::move(message));
}
inline Status Unavailable(std::string message) {
  return Status(StatusCode::kUnavailable, std::move(message));
}
inline Status Internal(std::string message) {
  return Status(StatusCode::kInternal, std::move(message));
}
inline Status DataLoss(std::string message) {
  return Status(StatusCode::kDataLoss, std::move(message));
}

// A value, or the reason why there is none. Reading the value of a failed one ends the
// process: it is a bug, never a reaction to input.
template <class T>
class [[nodiscard]] StatusOr {
 public:
  StatusOr(T value) : state_(std::move(value)) {}        // NOLINT: implicit by design.
  StatusOr(Status status) : state_(std::move(status)) {  // NOLINT: implicit by design.
    if (std::get<Status>(state_).ok()) std::abort();
  }

  bool ok() const { return std::holds_alternative<T>(state_); }
  Status status() const { return ok() ? Status() : std::get<Status>(state_); }

  T& value() & { return Checked(); }
  const T& value() const& { return const_cast<StatusOr*>(this)->Checked(); }
  T&& value() && { return std::move(Checked()); }
  T& operator*() & { return Checked(); }
  const T& operator*() const& { return const_cast<StatusOr*>(this)->Checked(); }
  T&& operator*() && { return std::move(Checked()); }
  T* operator->() { return &Checked(); }
  const T* operator->() const { return &const_cast<StatusOr*>(this)->Checked(); }

 private:
  T& Checked() {
    if (!ok()) std::abort();
    return std::get<T>(state_);
  }

  std::variant<Status, T> state_;
};

}  // namespace renga
