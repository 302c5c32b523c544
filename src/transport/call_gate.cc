#include "transport/call_gate.h"

#include "base/check.h"

namespace renga {

StatusOr<GenerationService*> CallGate::Enter() {
  MutexLock lock(mutex_);
  if (closed_) return Unavailable("the server is shutting down");
  return EnterOpened();
}

StatusOr<GenerationService*> CallGate::EnterEvenIfClosed() {
  MutexLock lock(mutex_);
  return EnterOpened();
}

StatusOr<GenerationService*> CallGate::EnterOpened() {
  if (service_ == nullptr) return Unavailable("the server is loading its model");
  ++inside_;
  return service_;
}

void CallGate::Leave() {
  MutexLock lock(mutex_);
  RENGA_CHECK(inside_ > 0);
  if (--inside_ == 0) empty_.NotifyAll();
}

void CallGate::Open(GenerationService& service) {
  MutexLock lock(mutex_);
  service_ = &service;
}

void CallGate::Close() {
  MutexLock lock(mutex_);
  closed_ = true;
}

int64_t CallGate::inside() const {
  MutexLock lock(mutex_);
  return inside_;
}

bool CallGate::WaitUntilEmpty(TimePoint deadline) {
  MutexLock lock(mutex_);
  while (inside_ > 0) {
    if (!empty_.WaitUntil(mutex_, deadline) && inside_ > 0) return false;
  }
  return true;
}

}  // namespace renga
