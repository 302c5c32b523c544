#include "batching/batch_window.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace renga {
namespace {

constexpr Duration kQuietInterval = std::chrono::seconds(1);
constexpr int64_t kSimilarSlack = 64;  // Prompts this close in length share a batch.
constexpr int64_t kMostTokens = int64_t{1} << 40;  // Keeps every sum far from overflow.

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
    : options_(options),
      turns_(kPriorities, FairTurns(options.tenant_quantum_tokens)),
      max_batch_(std::max(1, options.max_batch)) {}

// ---- Who waits -----------------------------------------------------------------------

BatchWindow::Waiting BatchWindow::Enter(const WindowRequest& request) {
  const Waiting waiting{
      .id = request.id,
      .tokens = std::clamp<int64_t>(request.uncached_tokens, 0, kMostTokens),
      .pages = request.pages,
      .arrival = request.arrival,
      .sequences = request.sequences,
      .priority = request.priority};
  waiting_tokens_ += waiting.tokens;
  waiting_of_[static_cast<size_t>(waiting.priority)] += 1;
  return waiting;
}

void BatchWindow::Add(const WindowRequest& request) {
  Waiting waiting = Enter(request);
  waiting.tenant = FindOrAddTenant(request.tenant);
  tenants_[static_cast<size_t>(waiting.tenant)].waiting += 1;
  waiting_.push_back(waiting);
}

void BatchWindow::AddPreempted(const WindowRequest& request) {
  Waiting waiting = Enter(request);
  waiting.preempted = true;
  waiting.released = true;
  auto place = waiting_.begin();
  while (place != waiting_.end() && place->preempted && place->arrival <= waiting.arrival)
    ++place;
  waiting_.insert(place, waiting);
}

bool BatchWindow::Remove(RequestId id) {
  const auto found = std::find_if(waiting_.begin(), waiting_.end(),
                                  [id](const Waiting& w) { return w.id == id; });
  if (found == waiting_.end()) return false;
  Forget(*found);
  waiting_.erase(found);
  return true;
}

void BatchWindow::Forget(const Waiting& waiting) {
  waiting_tokens_ -= waiting.tokens;
  waiting_of_[static_cast<size_t>(waiting.priority)] -= 1;
  if (waiting.tenant == kNoTenant) return;
  Tenant& tenant = tenants_[static_cast<size_t>(waiting.tenant)];
  if (--tenant.waiting > 0) return;
  for (FairTurns& turns : turns_) turns.Forget(waiting.tenant);
  tenant_of_name_.erase(tenant_of_name_.find(*tenant.name));
  tenant.name = nullptr;
  unused_tenants_.push_back(waiting.tenant);
}

int32_t BatchWindow::FindOrAddTenant(const std::string& name) {
  const auto [entry, is_new] = tenant_of_name_.try_emplace(name, 0);
  if (!is_new) return entry->second;
  if (unused_tenants_.empty()) {
    unused_tenants_.push_back(static_cast<int32_t>(tenants_.size()));
    tenants_.emplace_back();
  }
  const int32_t index = unused_tenants_.back();
  unused_tenants_.pop_back();
  tenants_[static_cast<size_t>(index)].name = &entry->first;
  entry->second = index;
  return index;
}

// ---- When ----------------------------------------------------------------------------

std::vector<BatchWindow::Batch> BatchWindow::TakeReady(TimePoint now,
                                                       const EngineState& state) {
  RelaxPressure(now);
  if (waiting_.empty()) return {};
  Release(now, state);
  SelectLeaving(now, state);
  if (leaving_.empty()) return {};
  std::erase_if(waiting_, [](const Waiting& waiting) { return waiting.left; });
  return CutIntoBatches();
}

void BatchWindow::Release(TimePoint now, const EngineState& state) {
  const std::optional<TimePoint> deadline = NextDeadline();
  if (!deadline) return;
  const bool all = options_.policy != BatchPolicy::kWindow ||
                   (!state.busy && options_.leave_when_idle) ||
                   size() > options_.queue_threshold || *deadline <= now;
  if (!all) return;
  for (Waiting& waiting : waiting_) waiting.released = true;
}

std::optional<TimePoint> BatchWindow::NextDeadline() const {
  std::optional<TimePoint> oldest;
  for (const Waiting& waiting : waiting_) {
    if (waiting.released) continue;
    if (!oldest || waiting.arrival < *oldest) oldest = waiting.arrival;
  }
  if (oldest) *oldest += options_.window;
  return oldest;
}

// ---- Who leaves ----------------------------------------------------------------------

void BatchWindow::SelectLeaving(TimePoint now, const EngineState& state) {
  Room room{.requests = max_batch_,
            .sequences = int64_t{options_.max_sequences} - state.running,
            .pages = state.free_pages + state.evictable_pages - state.running};
  if (options_.policy == BatchPolicy::kSerial) {
    Waiting& first = waiting_.front();
    if (state.running == 0 && HasRoom(first, room)) (void)Leave(first, room);
    return;
  }
  if (room.sequences <= 0 || !TakePreempted(room)) return;
  SortByClass(now);
  for (Waiting* waiting : turn_keepers_) {
    if (Blocks(*waiting) && !TakeIfRoom(*waiting, room)) return;
  }
  for (uint8_t level = 0; level < kPriorities; ++level) {
    if (!TakeClass(level, room)) return;
  }
}

bool BatchWindow::TakePreempted(Room& room) {
  for (Waiting& waiting : waiting_) {
    if (!waiting.preempted) break;
    if (!TakeIfRoom(waiting, room)) return false;
  }
  return true;
}

// Fills `of_class_` and `turn_keepers_` with those who were let go.
void BatchWindow::SortByClass(TimePoint now) {
  turn_keepers_.clear();
  for (std::vector<Waiting*>& members : of_class_) members.clear();
  for (Waiting& waiting : waiting_) {
    if (waiting.preempted || !waiting.released) continue;
    waiting.level = LevelOf(waiting, now);
    (waiting.keeps_turn ? turn_keepers_ : of_class_[waiting.level]).push_back(&waiting);
  }
}

bool BatchWindow::TakeClass(uint8_t level, Room& room) {
  for (Waiting* waiting : turn_keepers_) {
    if (waiting->left || waiting->level != level) continue;
    if (!HasRoom(*waiting, room)) {
      room.passing = true;
    } else if (!Leave(*waiting, room)) {
      return false;
    }
  }
  while (Waiting* next = NextInClass(level, room)) {
    if (HasRoom(*next, room)) {
      if (!Leave(*next, room)) return false;
      continue;
    }
    next->keeps_turn = true;
    room.passing = true;
    turn_keepers_.push_back(next);
    if (Blocks(*next)) return false;
  }
  return true;
}

bool BatchWindow::TakeIfRoom(Waiting& waiting, Room& room) {
  return HasRoom(waiting, room) && Leave(waiting, room);
}

bool BatchWindow::Leave(Waiting& waiting, Room& room) {
  waiting.left = true;
  room.requests -= 1;
  room.sequences -= PlacesOf(waiting);
  room.pages -= waiting.pages + PlacesOf(waiting);  // Its headroom, now that it runs.
  Forget(waiting);
  leaving_.push_back(waiting);
  bool open = room.requests > 0 && room.sequences > 0;
  if (!room.passing) return open;
  for (Waiting* passed : turn_keepers_) {
    if (passed->left || passed->level > waiting.level) continue;
    passed->overtaken += 1;
    open = open && !Blocks(*passed);
  }
  return open;
}

BatchWindow::Waiting* BatchWindow::NextInClass(uint8_t level, const Room& room) {
  std::vector<Waiting*>& members = of_class_[level];
  std::erase_if(members, [](const Waiting* w) { return w->left || w->keeps_turn; });
  costs_.assign(tenants_.size(), FairTurns::kAbsent);
  heads_.assign(tenants_.size(), nullptr);
  FairTurns& turns = turns_[level];
  for (Waiting* waiting : members) {
    const size_t tenant = static_cast<size_t>(waiting->tenant);
    if (heads_[tenant] != nullptr) continue;
    turns.Join(waiting->tenant);
    costs_[tenant] = FairTurns::kNoClaim;
    if (room.passing && !HasRoom(*waiting, room)) continue;
    heads_[tenant] = waiting;
    costs_[tenant] = std::max<int64_t>(1, waiting->tokens);
  }
  const int32_t next = turns.Next(costs_);
  return next < 0 ? nullptr : heads_[static_cast<size_t>(next)];
}

bool BatchWindow::HasRoom(const Waiting& waiting, const Room& room) const {
  return PlacesOf(waiting) <= room.sequences && waiting.pages <= room.pages;
}

int64_t BatchWindow::PlacesOf(const Waiting& waiting) const {
  return std::clamp(waiting.sequences, 1, std::max(1, options_.max_sequences));
}

bool BatchWindow::Blocks(const Waiting& waiting) const {
  return waiting.keeps_turn && waiting.overtaken >= options_.max_overtakes;
}

uint8_t BatchWindow::LevelOf(const Waiting& waiting, TimePoint now) const {
  auto level = static_cast<uint8_t>(waiting.priority);
  if (options_.aging <= Duration{}) return level;
  for (Duration left = now - waiting.arrival; level > 0 && left >= options_.aging;
       left -= options_.aging) {
    --level;
  }
  return level;
}

// ---- In which batches ----------------------------------------------------------------

std::vector<BatchWindow::Batch> BatchWindow::CutIntoBatches() {
  std::stable_sort(
      leaving_.begin(), leaving_.end(),
      [](const Waiting& a, const Waiting& b) { return a.tokens < b.tokens; });
  std::vector<Batch> batches;
  int64_t shortest = 0;
  for (const Waiting& leaving : leaving_) {
    const int64_t longest = std::max(2 * shortest, shortest + kSimilarSlack);
    if (batches.empty() || leaving.tokens > longest) {
      batches.emplace_back();
      shortest = leaving.tokens;
    }
    batches.back().push_back(leaving.id);
  }
  leaving_.clear();
  return batches;
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
