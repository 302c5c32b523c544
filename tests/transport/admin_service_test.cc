#include "transport/admin_service.h"

#include <gmock/gmock.h>
#include <google/protobuf/unknown_field_set.h>
#include <grpcpp/create_channel.h>

#include "tests/fakes/fake_server_control.h"
#include "transport/admin_server.h"
#include "transport/memory_table.h"

namespace renga {
namespace {

using testing::HasSubstr;

class AdminServiceTest : public testing::Test {
 protected:
  void SetUp() override {
    server_ = *AdminServer::Listen("127.0.0.1:0");
    server_->Serve(control_);
    stub_ = v1::Admin::NewStub(
        grpc::CreateChannel(server_->address(), grpc::InsecureChannelCredentials()));
  }

  FakeServerControl control_;
  std::unique_ptr<AdminServer> server_;
  std::unique_ptr<v1::Admin::Stub> stub_;
  grpc::ClientContext context_;
};

TEST_F(AdminServiceTest, TheMemoryReportComesWholeAndAsATable) {
  control_.report.rows = {{.purpose = "weights", .bytes = 1000, .buffers = 2},
                          {.purpose = "heap",
                           .bytes = 3000,
                           .buffers = 4,
                           .bytes_per_hour = 5,
                           .leak_suspected = true}};
  control_.report.kv_pages_total = 9;
  control_.report.kv_pages_used = 3;
  control_.report.kv_pages_cached = 2;
  control_.report.kv_page_bytes = 4096;
  v1::MemoryReportResponse response;
  ASSERT_TRUE(stub_->MemoryReport(&context_, {}, &response).ok());
  ASSERT_EQ(response.rows_size(), 2);
  EXPECT_EQ(response.rows(0).purpose(), "weights");
  EXPECT_EQ(response.rows(0).bytes(), 1000);
  EXPECT_EQ(response.rows(0).buffers(), 2);
  EXPECT_FALSE(response.rows(0).leak_suspected());
  EXPECT_EQ(response.rows(1).bytes_per_hour(), 5);
  EXPECT_TRUE(response.rows(1).leak_suspected());
  EXPECT_EQ(response.kv_pages_total(), 9);
  EXPECT_EQ(response.kv_pages_used(), 3);
  EXPECT_EQ(response.kv_pages_cached(), 2);
  EXPECT_EQ(response.kv_page_bytes(), 4096);
  EXPECT_EQ(response.table(), MemoryTable(control_.report));
}

TEST_F(AdminServiceTest, AFlushTellsItsPagesOrWhyNot) {
  v1::FlushCacheResponse response;
  ASSERT_TRUE(stub_->FlushCache(&context_, {}, &response).ok());
  EXPECT_EQ(response.pages(), 3);
  control_.flush = []() -> StatusOr<int64_t> { return Unavailable("too slow"); };
  grpc::ClientContext second;
  const grpc::Status status = stub_->FlushCache(&second, {}, &response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(status.error_message(), "too slow");
}

TEST_F(AdminServiceTest, DrainReachesTheServer) {
  v1::DrainResponse response;
  ASSERT_TRUE(stub_->Drain(&context_, {}, &response).ok());
  EXPECT_EQ(control_.drains(), 1);
}

TEST_F(AdminServiceTest, TheLogLevelReachesTheServerAndItsRefusalTheClient) {
  v1::SetLogLevelRequest request;
  request.set_level("debug");
  v1::SetLogLevelResponse response;
  ASSERT_TRUE(stub_->SetLogLevel(&context_, request, &response).ok());
  EXPECT_EQ(control_.level(), "debug");
  control_.log_status = InvalidArgument("level", "is none");
  grpc::ClientContext second;
  const grpc::Status status = stub_->SetLogLevel(&second, request, &response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(status.error_message(), "level: is none");
}

TEST_F(AdminServiceTest, AnUnknownFieldIsRefusedByItsNumber) {
  v1::SetLogLevelRequest request;
  request.set_level("debug");
  request.GetReflection()->MutableUnknownFields(&request)->AddVarint(7, 1);
  v1::SetLogLevelResponse response;
  const grpc::Status status = stub_->SetLogLevel(&context_, request, &response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(status.error_message(), HasSubstr("unknown field 7"));
  EXPECT_EQ(control_.calls(), 0);
}

}  // namespace
}  // namespace renga
