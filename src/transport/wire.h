// gRPC's byte buffers <-> protobuf messages.
//
// The service reads raw bytes, not messages that gRPC has decoded: gRPC answers bytes
// that can't be decoded with INTERNAL, but they are the client's fault and get
// INVALID_ARGUMENT; and a string that is not UTF-8 is reported by its field.
//
// Thread safety: every function may be called from any thread.

#pragma once

#include <google/protobuf/message.h>
#include <grpcpp/support/byte_buffer.h>

#include "renga/status.h"

namespace renga {

// Decodes `bytes` and checks that no field in it, at any depth, is unknown.
Status Decode(const grpc::ByteBuffer& bytes, google::protobuf::Message& message);

grpc::ByteBuffer Encode(const google::protobuf::Message& message);

// Sends protobuf's own complaints about foreign bytes to Decode instead of stderr. Once,
// before the first Decode.
void CaptureProtobufErrors();

}  // namespace renga
