// The printed names of the enums of include/renga.

#include "renga/backend.h"
#include "renga/request.h"

namespace renga {

std::string_view FinishReasonName(FinishReason reason) {
  switch (reason) {
    case FinishReason::kNone:
      return "none";
    case FinishReason::kStop:
      return "stop";
    case FinishReason::kLength:
      return "length";
    case FinishReason::kCancelled:
      return "cancelled";
  }
  return "none";
}

std::string_view StopCauseName(StopCause cause) {
  switch (cause) {
    case StopCause::kNone:
      return "none";
    case StopCause::kEndToken:
      return "end_token";
    case StopCause::kStopToken:
      return "stop_token";
    case StopCause::kStopString:
      return "stop_string";
    case StopCause::kMaxTokens:
      return "max_tokens";
    case StopCause::kContext:
      return "context";
    case StopCause::kPool:
      return "pool";
  }
  return "none";
}

std::string_view PriorityName(Priority priority) {
  switch (priority) {
    case Priority::kHigh:
      return "high";
    case Priority::kNormal:
      return "normal";
    case Priority::kLow:
      return "low";
  }
  return "normal";
}

std::string_view TensorTypeName(TensorType type) {
  switch (type) {
    case TensorType::kF32:
      return "F32";
    case TensorType::kF16:
      return "F16";
    case TensorType::kQ8_0:
      return "Q8_0";
    case TensorType::kQ4_1:
      return "Q4_1";
    case TensorType::kQ4_0:
      return "Q4_0";
    case TensorType::kQ4_K:
      return "Q4_K";
    case TensorType::kBf16:
      return "BF16";
  }
  return "?";
}

std::string_view KvDtypeName(KvDtype dtype) {
  switch (dtype) {
    case KvDtype::kF32:
      return "f32";
    case KvDtype::kF16:
      return "f16";
    case KvDtype::kBf16:
      return "bf16";
    case KvDtype::kInt8:
      return "int8";
  }
  return "?";
}

}  // namespace renga
