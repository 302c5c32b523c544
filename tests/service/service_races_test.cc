// Cancels at every stage, and races of everything that can end a request.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/service/service_fixture.h"

namespace renga {
namespace {

using std::chrono::milliseconds;
using testing::ElementsAre;

class ServiceRacesTest : public ServiceFixture {};

TEST_F(ServiceRacesTest, CancellingInThePoolEndsTheRequestThere) {
  Make();
  const RequestId id = service_->NewRequestId();
  tokenizer_.gate = [&] { service_->Cancel(id); };
  GenerateRequest request = Request("a");
  request.id = id;
  EXPECT_EQ(Refusal(request).code(), StatusCode::kCancelled);
  EXPECT_EQ(Outcomes("cancelled"), 1);
  EXPECT_EQ(Count(R"(renga_cancellations_total{model="tiny",stage="queued"})"), 1);
  EXPECT_EQ(AllOutcomes(), 1);
}

TEST_F(ServiceRacesTest, CancellingLaterReachesTheEngine) {
  Make();
  GenerateRequest request = Request("a");
  request.id = service_->NewRequestId();
  const RequestId id = request.id;
  CollectingSink sink;
  EngineRequest out = Submitted(std::move(request), sink);
  service_->Cancel(id);
  EXPECT_THAT(queue_->Take(TimePoint{}).cancels, ElementsAre(id));
  End(out, Cancelled("x"));
  EXPECT_EQ(Outcomes("cancelled"), 1);
}

// Cancels at any moment: every request ends once, and is counted once. A small engine of
// the test's own ends what it gets.
TEST_F(ServiceRacesTest, RacingCancelsEndEveryRequestOnce) {
  Make();
  std::atomic<bool> ending{false};
  std::thread engine([&] {
    std::vector<EngineRequest> running;
    for (bool last = false; !last;) {
      last = ending;
      WaitQueue::Mail mail = queue_->Take(TimePoint{});
      for (EngineRequest& r : mail.requests) {
        queue_->Release(1, static_cast<int64_t>(r.prompt.size()));
        running.push_back(std::move(r));
      }
      for (const RequestId id : mail.cancels) {
        for (EngineRequest& r : running) {
          if (r.id == id) End(r, Cancelled("x"));
        }
        std::erase_if(running, [&](const EngineRequest& r) { return r.id == id; });
      }
      if (running.size() <= 3 && !last) continue;
      for (EngineRequest& r : running) End(r);
      running.clear();
    }
  });
  constexpr int kRequests = 300;
  std::vector<std::unique_ptr<CollectingSink>> sinks;
  for (int i = 0; i < kRequests; ++i) {
    sinks.push_back(std::make_unique<CollectingSink>());
    GenerateRequest request = Request("a");
    request.id = service_->NewRequestId();
    const RequestId id = request.id;
    service_->Generate(std::move(request), *sinks.back());
    if (i % 2 == 0) service_->Cancel(id);
  }
  ASSERT_TRUE(service_->WaitSubmitted(TimePoint::max()));
  ending = true;
  engine.join();
  for (const auto& sink : sinks) EXPECT_TRUE(sink->done());
  EXPECT_EQ(AllOutcomes(), kRequests);
}

// Cancels, deadlines, refusals of the service and of the engine, a small queue and a
// drain in the middle: every request gets one answer and is counted once.
TEST_F(ServiceRacesTest, RacingEndsOfEveryKindAnswerEveryRequestOnce) {
  Make(6, {.max_requests = 8, .max_tokens = 40});
  EngineSnapshot measured = Measured();
  measured.full_step = milliseconds(100);
  board_.Publish(measured);
  std::atomic<bool> ending{false};
  std::thread engine([&] {
    int64_t taken = 0;
    for (bool last = false; !last;) {
      last = ending;
      WaitQueue::Mail mail = queue_->Take(TimePoint{});  // Nobody is left to cancel.
      for (EngineRequest& r : mail.requests) {
        queue_->Release(1, static_cast<int64_t>(r.prompt.size()));
        End(r, ++taken % 3 == 0 ? ResourceExhausted("too late") : OkStatus());
      }
    }
  });
  constexpr int kThreads = 3;
  constexpr int kRequests = 200;
  std::vector<std::unique_ptr<CollectingSink>> sinks;
  for (int i = 0; i < kThreads * kRequests; ++i) {
    sinks.push_back(std::make_unique<CollectingSink>());
  }
  std::vector<std::thread> clients;
  for (int t = 0; t < kThreads; ++t) {
    clients.emplace_back([&, t] {
      for (int i = 0; i < kRequests; ++i) {
        if (t == 0 && i == kRequests * 3 / 4) service_->StartDrain();
        if (t == 0 && i == kRequests * 7 / 8) queue_->Close();
        GenerateRequest request = Request(std::string(static_cast<size_t>(i % 9), 'a'));
        const RequestId id = request.id = service_->NewRequestId();
        if (i % 5 == 1) request.deadline = clock_.Now() + milliseconds(i % 50);
        if (i % 7 == 0) request.n = 100;
        service_->Generate(std::move(request),
                           *sinks[static_cast<size_t>(t * kRequests + i)]);
        if (i % 2 == 0) service_->Cancel(id);
      }
    });
  }
  for (std::thread& client : clients) client.join();
  ASSERT_TRUE(service_->WaitSubmitted(TimePoint::max()));
  ending = true;
  engine.join();
  for (const auto& sink : sinks) EXPECT_TRUE(sink->done());
  EXPECT_EQ(AllOutcomes(), kThreads * kRequests);
  EXPECT_GT(Outcomes("rejected"), 0);
  EXPECT_GT(Rejections("draining"), 0);
}

}  // namespace
}  // namespace renga
