// BatchWindow under random traffic, against a plain model of an engine with 12 pages and
// 5 places: nothing is lost or doubled, the counts are right, the memory rule holds,
// nobody is kept past the window while there is room, and nobody waits for ever.

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "batching/batch_window.h"
#include "tests/batching/window_requests.h"

namespace renga {
namespace {

using std::chrono::milliseconds;
using namespace test;

class RandomTraffic {
 public:
  explicit RandomTraffic(uint32_t seed) : rng_(seed) {}

  void Run(int operations) {
    for (int i = 0; i < operations; ++i) {
      now_ += milliseconds(OneIn(2) ? 0 : rng_() % 10);
      switch (rng_() % 12) {
        case 0:
        case 1:
        case 2:
          Arrive();
          break;
        case 3:
          if (OneIn(2)) RemoveOne();
          break;
        case 4:
          if (OneIn(2)) PreemptOne();
          break;
        case 5:
        case 6:
        case 7:
          FinishOne();
          break;
        case 8:
          if (OneIn(8)) window_.NotePressure(now_);
          break;
        default:
          break;
      }
      Take();
      CheckCounts();
      if (testing::Test::HasFatalFailure()) return;
    }
    while (!waiting_.empty() || !running_.empty()) {
      now_ += milliseconds(60);
      FinishOne();
      Take();
      if (testing::Test::HasFatalFailure()) return;
    }
    EXPECT_EQ(left_.size() + removed_, next_ - 1) << "lost or doubled";
    EXPECT_EQ(window_.size(), 0);
    EXPECT_EQ(window_.tenants(), 0);
  }
  int most_passed() const { return most_passed_; }

 private:
  static constexpr int64_t kPages = 12;
  static constexpr int32_t kPlaces = 5;

  struct Item {
    WindowRequest request;
    bool preempted = false;
    int passed = 0;  // Later ones that left before it.
  };

  bool OneIn(uint32_t n) { return rng_() % n == 0; }

  void Arrive() {
    const int64_t tokens = static_cast<int64_t>(rng_() % (OneIn(8) ? 769 : 129));
    WindowRequest request = Request(RequestId{next_}, tokens, now_);
    // Half of all come from one tenant, and a third in the highest class.
    request.tenant = OneIn(2) ? "flood" : std::to_string(rng_() % 6);
    request.priority = static_cast<Priority>(rng_() % kPriorities);
    request.sequences = OneIn(6) ? 1 + static_cast<int32_t>(rng_() % kPlaces) : 1;
    window_.Add(request);
    waiting_[next_++] = {.request = request};
  }
  void RemoveOne() {
    if (waiting_.empty()) return;
    const auto any = std::next(waiting_.begin(),
                               static_cast<std::ptrdiff_t>(rng_() % waiting_.size()));
    EXPECT_TRUE(window_.Remove(RequestId{any->first}));
    EXPECT_FALSE(window_.Remove(RequestId{any->first}));
    left_.erase(any->first);  // One that was preempted counts once.
    waiting_.erase(any);
    ++removed_;
  }
  void PreemptOne() {
    if (running_.size() < 2) return;
    const auto youngest = std::prev(running_.end());
    youngest->second.preempted = true;
    window_.AddPreempted(youngest->second.request);
    waiting_.insert(running_.extract(youngest));
  }
  void FinishOne() {
    if (running_.empty()) return;
    running_.erase(std::next(running_.begin(),
                             static_cast<std::ptrdiff_t>(rng_() % running_.size())));
  }

  int64_t UsedPages() const {
    int64_t used = 0;
    for (const auto& [id, item] : running_) used += item.request.pages;
    return used;
  }
  int32_t UsedPlaces() const {
    int32_t used = 0;
    for (const auto& [id, item] : running_) used += item.request.sequences;
    return used;
  }

  void Take() {
    const EngineState state{.busy = !running_.empty(),
                            .free_pages = kPages - UsedPages(),
                            .evictable_pages = 0,
                            .running = UsedPlaces()};
    std::vector<uint64_t> gone;
    int64_t largest_n = 0;
    for (const auto& batch : window_.TakeReady(now_, state)) {
      ASSERT_FALSE(batch.empty());
      for (const RequestId id : batch) gone.push_back(static_cast<uint64_t>(id));
    }
    for (const uint64_t id : gone) {
      ASSERT_TRUE(waiting_.contains(id)) << "left twice, or after its removal";
      largest_n = std::max<int64_t>(largest_n, waiting_[id].request.sequences);
      if (!waiting_[id].preempted) CountPassed(id);
      running_.insert(waiting_.extract(id));
      left_.insert(id);
    }
    if (!gone.empty()) {
      ASSERT_LE(UsedPages() + UsedPlaces() - largest_n, kPages);
      ASSERT_LE(UsedPlaces(), kPlaces);
    }
    ASSERT_TRUE(!running_.empty() || waiting_.empty()) << "an idle engine waits";
    ASSERT_GT(window_.NextDeadline().value_or(TimePoint::max()), now_)
        << "kept past the window";
  }
  void CountPassed(uint64_t id) {
    for (auto& [other, item] : waiting_) {
      if (other >= id) break;
      most_passed_ = std::max(most_passed_, ++item.passed);
    }
  }

  void CheckCounts() {
    int64_t tokens = 0;
    std::array<int64_t, kPriorities> of_priority{};
    std::set<std::string> tenants;
    for (const auto& [id, item] : waiting_) {
      tokens += item.request.uncached_tokens;
      of_priority[static_cast<size_t>(item.request.priority)] += 1;
      if (!item.preempted) tenants.insert(item.request.tenant);
    }
    ASSERT_EQ(window_.size(), static_cast<int64_t>(waiting_.size()));
    ASSERT_EQ(window_.waiting_tokens(), tokens);
    ASSERT_EQ(window_.tenants(), static_cast<int64_t>(tenants.size()));
    for (const Priority priority : {Priority::kHigh, Priority::kNormal, Priority::kLow}) {
      ASSERT_EQ(window_.waiting(priority), of_priority[static_cast<size_t>(priority)]);
    }
  }

  std::mt19937 rng_;
  BatchWindow window_{{.max_batch = 4,
                       .max_sequences = kPlaces,
                       .max_overtakes = 4,
                       .aging = milliseconds(200),
                       .tenant_quantum_tokens = 128}};
  TimePoint now_ = At(0);
  uint64_t next_ = 1;
  size_t removed_ = 0;
  int most_passed_ = 0;
  std::map<uint64_t, Item> waiting_, running_;
  std::set<uint64_t> left_;
};

// Twice the aging, the fair turns of seven tenants and four overtakes; at most 47 in
// these runs.
constexpr int kMostPassed = 60;

TEST(BatchWindowTrafficTest, RandomTrafficLosesNothingAndNobodyWaitsForEver) {
  for (uint32_t seed = 1; seed <= 5; ++seed) {
    RandomTraffic traffic(seed);
    traffic.Run(10'000);
    if (HasFatalFailure()) return;
    EXPECT_LE(traffic.most_passed(), kMostPassed) << "seed " << seed;
  }
}

}  // namespace
}  // namespace renga
