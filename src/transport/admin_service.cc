#include "transport/admin_service.h"

#include <utility>

#include "base/status_macros.h"
#include "transport/caller.h"
#include "transport/memory_table.h"
#include "transport/status_mapping.h"
#include "transport/wire.h"

namespace renga {
namespace {

constexpr size_t kMaxWaitingTasks = 16;

grpc::ServerUnaryReactor* Finish(grpc::CallbackServerContext& context,
                                 const Status& status) {
  grpc::ServerUnaryReactor* reactor = context.DefaultReactor();
  reactor->Finish(ToGrpcStatus(status));
  return reactor;
}

v1::MemoryReportResponse ToProto(const MemoryReport& report) {
  v1::MemoryReportResponse message;
  for (const MemoryReport::Row& row : report.rows) {
    v1::MemoryRow& entry = *message.add_rows();
    entry.set_purpose(row.purpose);
    entry.set_bytes(row.bytes);
    entry.set_buffers(row.buffers);
    entry.set_bytes_per_hour(row.bytes_per_hour);
    entry.set_leak_suspected(row.leak_suspected);
  }
  message.set_kv_pages_total(report.kv_pages_total);
  message.set_kv_pages_used(report.kv_pages_used);
  message.set_kv_pages_cached(report.kv_pages_cached);
  message.set_kv_page_bytes(report.kv_page_bytes);
  message.set_table(MemoryTable(report));
  return message;
}

}  // namespace

AdminService::AdminService(std::shared_ptr<const ApiKeys> keys)
    : keys_(std::move(keys)), tasks_(kMaxWaitingTasks) {
  CaptureProtobufErrors();
}

StatusOr<ServerControl*> AdminService::Admit(const grpc::CallbackServerContext& context,
                                             const grpc::ByteBuffer& bytes,
                                             google::protobuf::Message& message) const {
  RENGA_RETURN_IF_ERROR(IdentifyAdmin(context, keys_.get()));
  ServerControl* control = control_;
  if (control == nullptr) return Unavailable("the server is loading its model");
  RENGA_RETURN_IF_ERROR(Decode(bytes, message));
  return control;
}

grpc::ServerUnaryReactor* AdminService::MemoryReport(grpc::CallbackServerContext* context,
                                                     const grpc::ByteBuffer* bytes,
                                                     grpc::ByteBuffer* response) {
  v1::MemoryReportRequest request;
  const StatusOr<ServerControl*> control = Admit(*context, *bytes, request);
  if (control.ok()) *response = Encode(ToProto((*control)->ReportMemory()));
  return Finish(*context, control.status());
}

grpc::ServerUnaryReactor* AdminService::FlushCache(grpc::CallbackServerContext* context,
                                                   const grpc::ByteBuffer* bytes,
                                                   grpc::ByteBuffer* response) {
  v1::FlushCacheRequest request;
  const StatusOr<ServerControl*> control = Admit(*context, *bytes, request);
  if (!control.ok()) return Finish(*context, control.status());
  // gRPC keeps reactor and response until Finish.
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  const bool posted = tasks_.TryPost([reactor, response, control = *control] {
    const StatusOr<int64_t> pages = control->FlushCache();
    if (pages.ok()) {
      v1::FlushCacheResponse message;
      message.set_pages(*pages);
      *response = Encode(message);
    }
    reactor->Finish(ToGrpcStatus(pages.status()));
  });
  if (!posted) reactor->Finish(ToGrpcStatus(ResourceExhausted("too many calls wait")));
  return reactor;
}

grpc::ServerUnaryReactor* AdminService::Drain(grpc::CallbackServerContext* context,
                                              const grpc::ByteBuffer* bytes,
                                              grpc::ByteBuffer* response) {
  v1::DrainRequest request;
  const StatusOr<ServerControl*> control = Admit(*context, *bytes, request);
  if (control.ok()) {
    (*control)->StartDrain();
    *response = Encode(v1::DrainResponse());
  }
  return Finish(*context, control.status());
}

grpc::ServerUnaryReactor* AdminService::SetLogLevel(grpc::CallbackServerContext* context,
                                                    const grpc::ByteBuffer* bytes,
                                                    grpc::ByteBuffer* response) {
  v1::SetLogLevelRequest request;
  const StatusOr<ServerControl*> control = Admit(*context, *bytes, request);
  if (!control.ok()) return Finish(*context, control.status());
  Status status = (*control)->SetLogLevel(request.level());
  if (status.ok()) *response = Encode(v1::SetLogLevelResponse());
  return Finish(*context, status);
}

}  // namespace renga
