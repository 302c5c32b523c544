// Status -> grpc::Status: the only such table.

#pragma once

#include <grpcpp/support/status.h>

#include "renga/status.h"

namespace renga {

// The message starts with the field's name, if the status has one: "top_p: must be ...".
// The details (a google.rpc.Status, which gRPC sends as grpc-status-details-bin) hold a
// google.rpc.RetryInfo where the status says when to come back, and a
// google.rpc.BadRequest where it names the field of an invalid argument. A text that
// would not fit a client's limit for headers (8 KiB) is cut.
grpc::Status ToGrpcStatus(const Status& status);

}  // namespace renga
