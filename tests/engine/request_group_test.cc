// RequestGroup: the choices of one request, and what it says of them together.

#include "engine/request_group.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace renga {
namespace {

using std::chrono::milliseconds;
using testing::ElementsAre;
using testing::ElementsAreArray;

EngineRequest Request(int32_t n) {
  EngineRequest request;
  request.id = RequestId{5};
  request.prompt = {7, 8, 9};
  request.max_tokens = 10;
  request.n = n;
  return request;
}

TEST(RequestGroupTest, TheChoicesShareThePromptAndFollowOneAnotherInAge) {
  RequestGroup group(Request(3), 40, {});
  EXPECT_EQ(group.choices().size(), 1u);
  EXPECT_EQ(group.unforked(), 2);
  const Sequence* first = &group.first();
  group.Reserve();
  ASSERT_EQ(group.choices().size(), 3u);
  EXPECT_EQ(&group.first(), first) << "they never move";
  for (int32_t i = 0; i < 3; ++i) {
    const Sequence& choice = group.choices()[static_cast<size_t>(i)];
    EXPECT_EQ(choice.choice(), i);
    EXPECT_EQ(choice.age(), 40u + static_cast<uint64_t>(i));
    EXPECT_THAT(choice.tokens(), ElementsAre(7, 8, 9));
    EXPECT_EQ(choice.place, i == 0 ? SequencePlace::kWaiting : SequencePlace::kUnforked);
  }
  group.NoteForked();
  EXPECT_EQ(group.unforked(), 0);
  EXPECT_EQ(RequestGroup(Request(1), 1, {}).unforked(), 0);
}

TEST(RequestGroupTest, UsageCountsThePromptOnceAndTheTokensOfAllChoices) {
  RequestGroup group(Request(2), 1, {});
  group.Reserve();
  group.cached_tokens = 2;
  group.choices()[0].Append(1);
  for (int i = 0; i < 4; ++i) group.choices()[1].Append(1);
  EXPECT_EQ(group.usage().prompt_tokens, 3);
  EXPECT_EQ(group.usage().cached_tokens, 2);
  EXPECT_EQ(group.usage().completion_tokens, 5);
}

TEST(RequestGroupTest, TheEndOfChoiceZeroIsTheEndOfTheRequestWhoeverIsLast) {
  RequestGroup group(Request(2), 1, {});
  group.Reserve();
  group.NoteEnd(group.choices()[0], {FinishReason::kStop, StopCause::kEndToken});
  EXPECT_EQ(group.live(), 1);
  group.NoteEnd(group.choices()[1], {FinishReason::kLength, StopCause::kPool});
  EXPECT_EQ(group.live(), 0);
  EXPECT_EQ(group.first_end().cause, StopCause::kEndToken);
}

TEST(RequestGroupTest, TimingsAreZeroWhereAStageWasNotReached) {
  const TimePoint start = TimePoint{} + milliseconds(1000);
  EngineRequest request = Request(2);
  request.arrival = start;
  RequestGroup group(std::move(request), 1, start);
  group.Reserve();
  EXPECT_EQ(group.timings().queue, Duration{});
  group.first_step = start + milliseconds(10);
  EXPECT_EQ(group.timings().queue, milliseconds(10));
  EXPECT_EQ(group.timings().prefill, Duration{});
  group.prompt_done = start + milliseconds(30);
  EXPECT_EQ(group.timings().prefill, milliseconds(20));
  EXPECT_EQ(group.timings().decode, Duration{}) << "no token came";
  group.last_token = start + milliseconds(80);
  group.choices()[1].max_gap = milliseconds(25);
  EXPECT_EQ(group.timings().decode, milliseconds(50));
  EXPECT_EQ(group.timings().max_gap, milliseconds(25)) << "of any choice";
}

TEST(RequestGroupTest, ItsMemoryIsBookedWhileItLives) {
  const auto booked = [] {
    return MemoryLedger::Process().Read(MemoryPurpose::kRequests);
  };
  const MemoryLedger::Account before = booked();
  {
    EngineRequest request = Request(4);
    request.prompt_logprobs = 5;
    request.sampling.presence_penalty = 1.0f;
    const RequestGroup group(std::move(request), 1, {});
    const RequestGroup small(Request(1), 2, {});
    EXPECT_EQ(booked().buffers - before.buffers, 2);
    EXPECT_GT(booked().bytes - before.bytes, 5 * 13 * 4);
  }
  EXPECT_EQ(booked().buffers, before.buffers);
  EXPECT_EQ(booked().bytes, before.bytes);
}

}  // namespace
}  // namespace renga
