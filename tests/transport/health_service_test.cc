#include "transport/health_service.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "tests/transport/server_fixture.h"

namespace renga {
namespace {

using grpc::health::v1::Health;
using grpc::health::v1::HealthCheckResponse;

class HealthServiceTest : public ServerFixture {};

// The states in between may be skipped, the last one never.
TEST_F(HealthServiceTest, EveryWatchEndsUpWithTheLastState) {
  constexpr int kWatches = 16;
  std::atomic<int> told{0};
  std::vector<std::thread> watches;
  for (int i = 0; i < kWatches; ++i) {
    watches.emplace_back([&] {
      auto health = Health::NewStub(NewChannel({}));
      grpc::ClientContext context;
      auto reader = health->Watch(&context, {});
      HealthCheckResponse response;
      auto last = HealthCheckResponse::UNKNOWN;
      while (reader->Read(&response)) {
        if (last == HealthCheckResponse::UNKNOWN) ++told;
        EXPECT_NE(response.status(), last);  // Only changes are told.
        last = response.status();
      }
      EXPECT_EQ(last, HealthCheckResponse::NOT_SERVING);
    });
  }
  while (told < kWatches) std::this_thread::yield();
  for (int i = 0; i < 20'000; ++i) server_->SetServing(i % 2 == 0);
  server_->Shutdown();
  for (std::thread& watch : watches) watch.join();
}

}  // namespace
}  // namespace renga
