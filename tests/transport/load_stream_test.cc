// WatchLoad over a real connection.

#include "transport/load_stream.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "tests/transport/server_fixture.h"

namespace renga {
namespace {

using testing::HasSubstr;

class LoadStreamTest : public ServerFixture {
 protected:
  std::unique_ptr<grpc::ClientReader<v1::GetLoadResponse>> Watch(
      grpc::ClientContext& context, int32_t interval_ms) {
    v1::WatchLoadRequest request;
    request.set_interval_ms(interval_ms);
    return stub_->WatchLoad(&context, request);
  }
  bool GateIsEmpty() {
    for (int i = 0; i < 10'000 && server_->active_calls() > 0; ++i) {
      std::this_thread::yield();
      v1::GetLoadResponse load;
      grpc::ClientContext context;
      (void)stub_->GetLoad(&context, {}, &load);  // A round trip each.
    }
    return server_->active_calls() == 0;
  }
};

TEST_F(LoadStreamTest, WritesAtOnceAndAgain) {
  grpc::ClientContext context;
  const auto reader = Watch(context, 100);
  v1::GetLoadResponse unary;
  grpc::ClientContext unary_context;
  ASSERT_TRUE(stub_->GetLoad(&unary_context, {}, &unary).ok());
  for (int i = 0; i < 3; ++i) {
    v1::GetLoadResponse load;
    ASSERT_TRUE(reader->Read(&load));
    EXPECT_EQ(load.max_waiting(), unary.max_waiting());
    EXPECT_EQ(load.ready(), unary.ready());
  }
  context.TryCancel();
}

TEST_F(LoadStreamTest, ACancelFreesTheCallBeforeTheIntervalIsOver) {
  grpc::ClientContext context;
  const auto reader = Watch(context, 60'000);
  v1::GetLoadResponse load;
  ASSERT_TRUE(reader->Read(&load));
  EXPECT_EQ(server_->active_calls(), 1);
  context.TryCancel();
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::CANCELLED);
  EXPECT_TRUE(GateIsEmpty());
}

TEST_F(LoadStreamTest, EndsWhenTheServerDrains) {
  grpc::ClientContext context;
  const auto reader = Watch(context, 60'000);
  v1::GetLoadResponse load;
  ASSERT_TRUE(reader->Read(&load));
  // Long before the interval or this deadline.
  EXPECT_TRUE(
      server_->Drain(std::chrono::steady_clock::now() + std::chrono::seconds(30)));
  EXPECT_FALSE(reader->Read(&load));
  const grpc::Status status = reader->Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_THAT(status.error_message(), HasSubstr("shutting down"));
  grpc::ClientContext late;
  EXPECT_EQ(Watch(late, 1000)->Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
}

TEST_F(LoadStreamTest, AnIntervalOutOfRangeIsRefusedByName) {
  for (const int32_t interval : {-1, 0, 99, 60'001}) {
    grpc::ClientContext context;
    const grpc::Status status = Watch(context, interval)->Finish();
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
    EXPECT_THAT(status.error_message(), HasSubstr("interval_ms: must be from 100"));
  }
  EXPECT_EQ(server_->active_calls(), 0);
}

TEST_F(LoadStreamTest, WithKeysOnItWantsOne) {
  const auto keys = ApiKeys::Parse("me 0123456789abcdef\n");
  ASSERT_TRUE(keys.ok());
  Start({}, *keys);
  grpc::ClientContext context;
  EXPECT_EQ(Watch(context, 1000)->Finish().error_code(),
            grpc::StatusCode::UNAUTHENTICATED);
  EXPECT_THAT(
      metrics_.Serialize(),
      HasSubstr("renga_rejections_total{model=\"fake\",reason=\"unauthenticated\"} 1"));
}

TEST_F(LoadStreamTest, ThereAreNoMoreThanSoMany) {
  std::vector<std::unique_ptr<grpc::ClientContext>> contexts;
  std::vector<std::unique_ptr<grpc::ClientReader<v1::GetLoadResponse>>> readers;
  v1::GetLoadResponse load;
  for (size_t i = 0; i < LoadStreams::kMaxStreams; ++i) {
    contexts.push_back(std::make_unique<grpc::ClientContext>());
    readers.push_back(Watch(*contexts.back(), 60'000));
    ASSERT_TRUE(readers.back()->Read(&load));
  }
  grpc::ClientContext one_more;
  EXPECT_EQ(Watch(one_more, 60'000)->Finish().error_code(),
            grpc::StatusCode::RESOURCE_EXHAUSTED);
  for (const auto& context : contexts) context->TryCancel();
  EXPECT_TRUE(GateIsEmpty());
}

}  // namespace
}  // namespace renga
