#include "gateway/http_error.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "gateway/json_writer.h"

namespace renga {
namespace {

// OpenAI's `type` and `code` of an error.
struct ErrorKind {
  std::string_view type;
  std::string_view code;  // May be empty: null.
};

ErrorKind KindOf(int http_status) {
  switch (http_status) {
    case 401:
      return {"authentication_error", "invalid_api_key"};
    case 403:
      return {"permission_error", ""};
    case 404:
      return {"invalid_request_error", "not_found"};
    case 429:
      return {"rate_limit_error", "rate_limit_exceeded"};
    case 499:
      return {"cancelled", "cancelled"};
    case 503:
      return {"server_error", "unavailable"};
    case 504:
      return {"server_error", "deadline_exceeded"};
    default:
      return {http_status >= 500 ? "server_error" : "invalid_request_error", ""};
  }
}

std::string Body(const ErrorKind& kind, std::string_view message,
                 std::string_view param) {
  JsonWriter json;
  json.BeginObject().Key("error").BeginObject();
  json.Field("message", message).Field("type", kind.type);
  param.empty() ? json.NullField("param") : json.Field("param", param);
  kind.code.empty() ? json.NullField("code") : json.Field("code", kind.code);
  json.EndObject().EndObject();
  return std::move(json).Take();
}

HttpResponse JsonResponse(int http_status, std::string body) {
  HttpResponse response{.status = http_status, .body = std::move(body)};
  response.Set("Content-Type", "application/json");
  return response;
}

}  // namespace

int HttpStatusOf(StatusCode code) {
  switch (code) {
    case StatusCode::kOk:
      return 200;
    case StatusCode::kInvalidArgument:
    case StatusCode::kFailedPrecondition:
    case StatusCode::kOutOfRange:
      return 400;
    case StatusCode::kUnauthenticated:
      return 401;
    case StatusCode::kPermissionDenied:
      return 403;
    case StatusCode::kNotFound:
      return 404;
    case StatusCode::kAlreadyExists:
    case StatusCode::kAborted:
      return 409;
    case StatusCode::kResourceExhausted:
      return 429;
    case StatusCode::kCancelled:
      return 499;  // As nginx calls it: the client has closed the request.
    case StatusCode::kUnknown:
    case StatusCode::kInternal:
    case StatusCode::kDataLoss:
      return 500;
    case StatusCode::kUnimplemented:
      return 501;
    case StatusCode::kUnavailable:
      return 503;
    case StatusCode::kDeadlineExceeded:
      return 504;
  }
  return 500;
}

std::string ErrorBody(const Status& status) {
  ErrorKind kind = KindOf(HttpStatusOf(status.code()));
  // Of what the native API has, only a model can be missing.
  if (status.code() == StatusCode::kNotFound) kind.code = "model_not_found";
  std::string message = status.message();
  if (!status.field().empty()) message = status.field() + ": " + message;
  return Body(kind, message, status.field());
}

HttpResponse ErrorResponse(const Status& status) {
  HttpResponse response = JsonResponse(HttpStatusOf(status.code()), ErrorBody(status));
  if (status.code() == StatusCode::kUnauthenticated) {
    response.Set("WWW-Authenticate", "Bearer");
  }
  if (!status.retry_after() && response.status != 503) return response;
  const int64_t milliseconds = std::chrono::duration_cast<std::chrono::milliseconds>(
                                   status.retry_after().value_or(std::chrono::seconds(1)))
                                   .count();
  // Whole seconds for everybody; OpenAI's clients know milliseconds too.
  response.Set("Retry-After",
               std::to_string(std::max<int64_t>(1, (milliseconds + 999) / 1000)));
  response.Set("Retry-After-Ms", std::to_string(std::max<int64_t>(1, milliseconds)));
  return response;
}

HttpResponse HttpErrorResponse(int http_status, std::string_view message) {
  return JsonResponse(http_status, Body(KindOf(http_status), message, ""));
}

}  // namespace renga
