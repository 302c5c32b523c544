// CallGate: whether a call may come in, and how many are inside.
//
// Closed until the model is loaded and again when the server drains. Everybody who got
// the service gives it back by Leave. Work that is new comes in by Enter: after
// WaitUntilEmpty none is left. What is about the work that goes on (a cancel, the load)
// also comes in while the server drains, and is answered at once.
//
// Thread safety: every method may be called from any thread.

#pragma once

#include <cstdint>
#include <string>

#include "base/mutex.h"
#include "renga/generation_service.h"
#include "renga/status.h"

namespace renga {

class CallGate {
 public:
  // Lets a call in: what to call; or UNAVAILABLE. After success Leave once.
  StatusOr<GenerationService*> Enter() RENGA_EXCLUDES(mutex_);
  // The same, but only UNAVAILABLE before Open.
  StatusOr<GenerationService*> EnterEvenIfClosed() RENGA_EXCLUDES(mutex_);
  void Leave() RENGA_EXCLUDES(mutex_);

  void Open(GenerationService& service) RENGA_EXCLUDES(mutex_);
  void Close() RENGA_EXCLUDES(mutex_);  // For good.

  int64_t inside() const RENGA_EXCLUDES(mutex_);
  // False if calls are still inside at `deadline`.
  bool WaitUntilEmpty(TimePoint deadline) RENGA_EXCLUDES(mutex_);

 private:
  StatusOr<GenerationService*> EnterOpened() RENGA_REQUIRES(mutex_);

  mutable Mutex mutex_;
  CondVar empty_;
  GenerationService* service_ RENGA_GUARDED_BY(mutex_) = nullptr;
  bool closed_ RENGA_GUARDED_BY(mutex_) = false;
  int64_t inside_ RENGA_GUARDED_BY(mutex_) = 0;
};

}  // namespace renga
