// WaitQueue: the bounds, what they count, closing, and many threads at once.

#include "batching/wait_queue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

namespace renga {
namespace {

using PushResult = WaitQueue::PushResult;
using testing::ElementsAre;
using testing::IsEmpty;

constexpr TimePoint kPast{};

EngineRequest Request(uint64_t id, size_t tokens) {
  EngineRequest request;
  request.id = RequestId{id};
  request.prompt.assign(tokens, 0);
  return request;
}

PushResult Push(WaitQueue& queue, uint64_t id, size_t tokens) {
  EngineRequest request = Request(id, tokens);
  return queue.TryPush(request);
}

TEST(WaitQueueTest, IsFullInRequestsUntilTheEngineSaysThatOneLeft) {
  WaitQueue queue({.max_requests = 2, .max_tokens = 1000});
  EXPECT_EQ(Push(queue, 1, 5), PushResult::kOk);
  EXPECT_EQ(Push(queue, 2, 5), PushResult::kOk);
  EXPECT_EQ(Push(queue, 3, 5), PushResult::kFull);
  EXPECT_EQ(queue.Take(kPast).requests.size(), 2u);
  EXPECT_EQ(Push(queue, 3, 5), PushResult::kFull) << "taken is not yet left";
  queue.Release(1, 5);
  EXPECT_EQ(Push(queue, 3, 5), PushResult::kOk);
  EXPECT_EQ(queue.waiting_requests(), 2);
  EXPECT_EQ(queue.waiting_tokens(), 10);
}

TEST(WaitQueueTest, IsFullInTokensButLetsALargeOneInAlone) {
  WaitQueue queue({.max_requests = 9, .max_tokens = 100});
  EXPECT_EQ(Push(queue, 1, 60), PushResult::kOk);
  EXPECT_EQ(Push(queue, 2, 41), PushResult::kFull);
  EXPECT_EQ(Push(queue, 3, 40), PushResult::kOk);
  queue.Release(2, 100);
  EXPECT_EQ(Push(queue, 4, 500), PushResult::kOk);
  EXPECT_EQ(Push(queue, 5, 1), PushResult::kFull);
}

TEST(WaitQueueTest, ARefusedRequestIsLeftAsItWas) {
  WaitQueue queue({.max_requests = 0, .max_tokens = 100});
  EngineRequest request = Request(7, 3);
  EXPECT_EQ(queue.TryPush(request), PushResult::kFull);
  queue.Close();
  EXPECT_EQ(queue.TryPush(request), PushResult::kClosed);
  EXPECT_EQ(request.prompt.size(), 3u);
}

TEST(WaitQueueTest, TakeGivesEverythingInOrderOfArrivalOnce) {
  WaitQueue queue({});
  Push(queue, 1, 1);
  queue.PostCancel(RequestId{9});
  Push(queue, 2, 1);
  queue.PostResume(RequestId{8});
  const WaitQueue::Mail mail = queue.Take(std::nullopt);
  ASSERT_EQ(mail.requests.size(), 2u);
  EXPECT_EQ(mail.requests[0].id, RequestId{1});
  EXPECT_EQ(mail.requests[1].id, RequestId{2});
  EXPECT_THAT(mail.cancels, ElementsAre(RequestId{9}));
  EXPECT_THAT(mail.resumes, ElementsAre(RequestId{8}));
  EXPECT_FALSE(mail.closed);
  EXPECT_TRUE(queue.Take(kPast).requests.empty());
}

TEST(WaitQueueTest, ClosingEndsOneWaitAndCancelsStillPass) {
  WaitQueue queue({});
  std::thread closer([&] { queue.Close(); });
  EXPECT_TRUE(queue.Take(std::nullopt).closed);
  closer.join();
  queue.PostCancel(RequestId{3});
  const WaitQueue::Mail mail = queue.Take(std::nullopt);
  EXPECT_TRUE(mail.closed);
  EXPECT_THAT(mail.cancels, ElementsAre(RequestId{3}));
}

TEST(WaitQueueTest, WakeEndsAWaitWithNothing) {
  WaitQueue queue({});
  queue.Wake();
  EXPECT_TRUE(queue.Take(std::nullopt).requests.empty());
}

TEST(WaitQueueTest, AFlushIsTakenOnceAndEndsAWait) {
  WaitQueue queue({});
  int64_t freed = 0;
  std::thread poster(
      [&] { EXPECT_TRUE(queue.PostFlush([&](int64_t pages) { freed += pages; })); });
  const WaitQueue::Mail mail = queue.Take(std::nullopt);
  poster.join();
  ASSERT_EQ(mail.flushes.size(), 1u);
  mail.flushes[0](7);
  EXPECT_EQ(freed, 7);
  EXPECT_TRUE(queue.Take(kPast).flushes.empty());
}

TEST(WaitQueueTest, AFlushBeforeTheCloseIsInTheMailThatSaysSoAndALaterOneIsRefused) {
  WaitQueue queue({});
  std::vector<int64_t> calls;
  const auto done = [&](int64_t pages) { calls.push_back(pages); };
  EXPECT_TRUE(queue.PostFlush(done));
  queue.Close();
  EXPECT_FALSE(queue.PostFlush(done));
  const WaitQueue::Mail mail = queue.Take(std::nullopt);
  EXPECT_TRUE(mail.closed);
  EXPECT_EQ(mail.flushes.size(), 1u);
  EXPECT_THAT(calls, IsEmpty());
}

TEST(WaitQueueTest, AFlushThatNobodyTookIsToldSoWhenTheQueueDies) {
  std::vector<int64_t> calls;
  {
    WaitQueue queue({});
    queue.PostFlush([&](int64_t pages) { calls.push_back(pages); });
    for (const auto& taken : queue.Take(kPast).flushes) taken(3);
    queue.PostFlush([&](int64_t pages) { calls.push_back(pages); });
    EXPECT_THAT(calls, ElementsAre(3));
  }
  EXPECT_THAT(calls, ElementsAre(3, -1));
}

TEST(WaitQueueTest, ManyThreadsLoseNothing) {
  constexpr int kThreads = 4, kEach = 500;
  WaitQueue queue({.max_requests = 8, .max_tokens = 1000});
  std::atomic<int> pushing{kThreads};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < kEach;) {
        const uint64_t id = static_cast<uint64_t>(t * kEach + i);
        if (Push(queue, id, 3) == PushResult::kOk) {
          queue.PostCancel(RequestId{id});
          ++i;
        } else {
          std::this_thread::yield();
        }
      }
      if (--pushing == 0) queue.Close();
    });
  }
  std::vector<int> seen(kThreads * kEach, 0);
  size_t cancels = 0;
  for (bool closed = false; !closed;) {
    const WaitQueue::Mail mail = queue.Take(std::nullopt);
    for (const EngineRequest& request : mail.requests) {
      ++seen[static_cast<size_t>(request.id)];
      queue.Release(1, 3);
    }
    cancels += mail.cancels.size();
    closed = mail.closed;
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(std::count(seen.begin(), seen.end(), 1), kThreads * kEach);
  EXPECT_EQ(cancels, size_t{kThreads} * kEach);
  EXPECT_EQ(queue.waiting_requests(), 0);
  EXPECT_EQ(queue.waiting_tokens(), 0);
}

}  // namespace
}  // namespace renga
