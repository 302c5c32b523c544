// What a failure looks like over HTTP: OpenAI's error object, and the only table from the
// codes of the native API to those of HTTP.
//
// Thread safety: pure functions.

#pragma once

#include <string>
#include <string_view>

#include "gateway/http_message.h"
#include "renga/status.h"

namespace renga {

// 400 for INVALID_ARGUMENT and so on; OK is 200.
int HttpStatusOf(StatusCode code);

// {"error": {"message": ..., "type": ..., "param": ..., "code": ...}}
std::string ErrorBody(const Status& status);

// The whole answer; with Retry-After if the status says when to come back.
HttpResponse ErrorResponse(const Status& status);

// For what only HTTP knows: 404 of a path, 405, 413, ...
HttpResponse HttpErrorResponse(int http_status, std::string_view message);

}  // namespace renga
