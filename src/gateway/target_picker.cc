#include "gateway/target_picker.h"

#include <algorithm>

namespace renga {
namespace {

// FNV-1a of the session and then the target's number, mixed (splitmix64): the same in
// every process, so that gateways side by side agree.
uint64_t Weight(std::string_view session, size_t target) {
  uint64_t hash = 0xCBF29CE484222325u;
  for (const char c : session) {
    hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001B3u;
  }
  hash += (target + 1) * 0x9E3779B97F4A7C15u;
  hash = (hash ^ (hash >> 30)) * 0xBF58476D1CE4E5B9u;
  hash = (hash ^ (hash >> 27)) * 0x94D049BB133111EBu;
  return hash ^ (hash >> 31);
}

}  // namespace

int TargetPicker::Pick(std::string_view session, const std::vector<int>& tried,
                       TimePoint now) {
  MutexLock lock(mutex_);
  const size_t count = resting_until_.size();
  const size_t first = session.empty() ? turn_++ % count : 0;
  int best = -1;
  bool best_rests = true;
  uint64_t best_weight = 0;
  for (size_t i = 0; i < count; ++i) {
    const size_t target = (first + i) % count;
    const int number = static_cast<int>(target);
    if (std::find(tried.begin(), tried.end(), number) != tried.end()) continue;
    const bool rests = now < resting_until_[target];
    const uint64_t weight = session.empty() ? 0 : Weight(session, target);
    const bool better = best < 0 || (best_rests && !rests) ||
                        (best_rests == rests && weight > best_weight);
    if (!better) continue;
    best = number;
    best_rests = rests;
    best_weight = weight;
  }
  return best;
}

bool TargetPicker::Failed(int target, TimePoint now) {
  MutexLock lock(mutex_);
  const auto i = static_cast<size_t>(target);
  resting_until_[i] = now + kRestTime;
  const bool is_new = !failed_[i];
  failed_[i] = true;
  return is_new;
}

bool TargetPicker::Worked(int target) {
  MutexLock lock(mutex_);
  const auto i = static_cast<size_t>(target);
  resting_until_[i] = {};
  const bool is_new = failed_[i];
  failed_[i] = false;
  return is_new;
}

}  // namespace renga
