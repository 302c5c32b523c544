#include "batching/batch_window.h"

#include <algorithm>
#include <string>
#include <utility>

namespace renga {
namespace {

constexpr Duration kQuietInterval = std::chrono::seconds(1);
constexpr int64_t kSimilarSlack = 64;  // Prompts this close in length share a batch.

}  // namespace

StatusOr<BatchPolicy> ParseBatchPolicy(std::string_view name) {
  if (name == "window") return BatchPolicy::kWindow;
  if (name == "continuous") return BatchPolicy::kContinuous;
  if (name == "serial") return BatchPolicy::kSerial;
  return InvalidArgument(
      "scheduler.policy",
      "must be window, continuous or serial, not '" + std::string(name) + "'");
}

BatchWindow::BatchWindow(const BatchWindowOptions& options)
    : options_(options), max_batch_(std::max(1, options.max_batch)) {}

void BatchWindow::Add(WindowRequest request) {
  waiting_tokens_ += request.uncached_tokens;
  waiting_.push_back({.request = std::move(request)});
}

void BatchWindow::AddPreempted(WindowRequest request) {
  auto place = waiting_.begin();
  while (place != waiting_.end() && place->preempted &&
         place->request.arrival <= request.arrival)
    ++place;
  waiting_tokens_ += request.uncached_tokens;
  waiting_.insert(place,
                  {.request = std::move(request), .released = true, .preempted = true});
}

bool BatchWindow::Remove(RequestId id) {
  const auto found = std::find_if(waiting_.begin(), waiting_.end(),
                                  [id](const Waiting& w) { return w.request.id == id; });
  if (found == waiting_.end()) return false;
  waiting_tokens_ -= found->request.uncached_tokens;
  waiting_.erase(found);
  return true;
}

std::vector<BatchWindow::Batch> BatchWindow::TakeReady(TimePoint now,
                                                       const EngineState& state) {
  RelaxPressure(now);
  if (waiting_.empty()) return {};
  Release(now, state);
  SelectLeaving(state);
  return CutIntoBatches();
}

void BatchWindow::Release(TimePoint now, const EngineState& state) {
  const std::optional<TimePoint> deadline = NextDeadline();
  const bool all = options_.policy != BatchPolicy::kWindow ||
                   (!state.busy && options_.leave_when_idle) ||
                   size() > options_.queue_threshold || (deadline && *deadline <= now);
  if (!all) return;
  for (Waiting& waiting : waiting_) waiting.released = true;
}

void BatchWindow::SelectLeaving(const EngineState& state) {
  const bool serial = options_.policy == BatchPolicy::kSerial;
  const int32_t places =
      serial ? (state.running == 0 ? 1 : 0)
             : std::min(max_batch_, options_.max_sequences - state.running);
  int64_t pages = state.free_pages + state.evictable_pages - state.running;
  bool passing = true;  // Nobody in front forbids to be passed.
  size_t kept = 0;
  for (size_t i = 0; i < waiting_.size(); ++i) {
    Waiting& waiting = waiting_[i];
    const int64_t need = waiting.request.pages;
    const bool place = static_cast<int32_t>(leaving_.size()) < places;
    if (passing && place && waiting.released && need <= pages) {
      pages -= need + 1;  // From here on it is a running sequence: one page of headroom.
      for (size_t k = 0; k < kept; ++k) {
        waiting_[k].overtaken += 1;
        passing = passing && waiting_[k].overtaken < options_.max_overtakes;
      }
      waiting_tokens_ -= waiting.request.uncached_tokens;
      leaving_.push_back(waiting);
      continue;
    }
    const bool blocks = serial || !place || waiting.preempted ||
                        waiting.overtaken >= options_.max_overtakes;
    if (waiting.released && blocks) passing = false;
    waiting_[kept++] = waiting;
  }
  waiting_.resize(kept);
}

std::vector<BatchWindow::Batch> BatchWindow::CutIntoBatches() {
  std::stable_sort(leaving_.begin(), leaving_.end(),
                   [](const Waiting& a, const Waiting& b) {
                     return a.request.uncached_tokens < b.request.uncached_tokens;
                   });
  std::vector<Batch> batches;
  int64_t shortest = 0;
  for (const Waiting& leaving : leaving_) {
    const int64_t longest = std::max(2 * shortest, shortest + kSimilarSlack);
    if (batches.empty() || leaving.request.uncached_tokens > longest) {
      batches.emplace_back();
      shortest = leaving.request.uncached_tokens;
    }
    batches.back().push_back(leaving.request.id);
  }
  leaving_.clear();
  return batches;
}

std::optional<TimePoint> BatchWindow::NextDeadline() const {
  std::optional<TimePoint> oldest;
  for (const Waiting& waiting : waiting_) {
    if (waiting.released) continue;
    if (!oldest || waiting.request.arrival < *oldest) oldest = waiting.request.arrival;
  }
  if (oldest) *oldest += options_.window;
  return oldest;
}

void BatchWindow::NotePressure(TimePoint now) {
  max_batch_ = std::max(1, max_batch_ / 2);
  quiet_since_ = now;
}

void BatchWindow::RelaxPressure(TimePoint now) {
  while (max_batch_ < options_.max_batch && now - quiet_since_ >= kQuietInterval) {
    ++max_batch_;
    quiet_since_ += kQuietInterval;
  }
}

}  // namespace renga
