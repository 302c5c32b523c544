// Who calls: the key's tenant where keys are on, or else what x-tenant-id says.
//
// The first thing that every handler does, so that a call without a key learns nothing,
// not even whether the server is ready.
//
// Thread safety: every function may be called from any thread.

#pragma once

#include <grpcpp/server_context.h>

#include <string>

#include "renga/status.h"
#include "transport/api_keys.h"

namespace renga {

// The tenant ("" if it names none). `keys`: nullptr where keys are off. UNAUTHENTICATED
// without a good key, INVALID_ARGUMENT for a wrong or forbidden x-tenant-id.
StatusOr<std::string> Identify(const grpc::CallbackServerContext& context,
                               const ApiKeys* keys);
// The same, and PERMISSION_DENIED for others than the tenant "admin".
Status IdentifyAdmin(const grpc::CallbackServerContext& context, const ApiKeys* keys);

}  // namespace renga
