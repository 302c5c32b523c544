// Status -> grpc::Status: the only such table.

#pragma once

#include <grpcpp/support/status.h>

#include "renga/status.h"

namespace renga {

// The message starts with the field's name, if the status has one: "top_p: must be ...".
grpc::Status ToGrpcStatus(const Status& status);

}  // namespace renga
