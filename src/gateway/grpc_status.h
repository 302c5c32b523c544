// Status of a gRPC call -> Status: with the field as OpenAI's API calls it, and the time
// to come back.
//
// Thread safety: pure function.

#pragma once

#include <grpcpp/support/status.h>

#include "renga/status.h"

namespace renga {

Status FromGrpcStatus(const grpc::Status& status);

}  // namespace renga
