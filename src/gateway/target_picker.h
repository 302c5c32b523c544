// TargetPicker: which of several servers a call goes to.
//
// A call with a session goes to the server with the highest hash of session and server
// (rendezvous hashing: if one is lost, only its own sessions move); others go round
// robin. A server that failed is left out for kRestTime, unless all did.
//
// Thread safety: every method may be called from any thread.

#pragma once

#include <chrono>
#include <cstdint>
#include <string_view>
#include <vector>

#include "base/mutex.h"

namespace renga {

class TargetPicker {
 public:
  static constexpr std::chrono::seconds kRestTime{1};

  // REQUIRES: count > 0.
  explicit TargetPicker(size_t count) : resting_until_(count), failed_(count) {}

  // `tried` are those that this call has tried already; -1 if that is all of them.
  int Pick(std::string_view session, const std::vector<int>& tried, TimePoint now)
      RENGA_EXCLUDES(mutex_);
  // True: the last thing that was heard of it was good, or nothing.
  bool Failed(int target, TimePoint now) RENGA_EXCLUDES(mutex_);
  // True: the last thing that was heard of it was a failure.
  bool Worked(int target) RENGA_EXCLUDES(mutex_);

 private:
  Mutex mutex_;
  std::vector<TimePoint> resting_until_ RENGA_GUARDED_BY(mutex_);
  std::vector<bool> failed_ RENGA_GUARDED_BY(mutex_);  // What was heard last.
  size_t turn_ RENGA_GUARDED_BY(mutex_) = 0;
};

}  // namespace renga
