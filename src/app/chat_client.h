// ChatClient: calls of the native API for one who waits for them.
//
// It is the gateway's client with an event loop of its own: the thread that asks runs it
// until the answer is there.
//
// Thread rule: one thread asks; Cancel may be called from any.

#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>

#include "base/mutex.h"
#include "gateway/inference_client.h"
#include "renga/status.h"

namespace renga {

class ChatClient {
 public:
  using OnEvent = std::function<void(const v1::GenerateResponse& event)>;

  // `key`: sent with every call; empty: none.
  ChatClient(const std::string& target, const std::string& key);
  ~ChatClient();

  StatusOr<v1::GetModelResponse> GetModel();
  // Calls `on_event` for all that comes of the answer, until its end. CANCELLED after
  // Cancel.
  Status Ask(const v1::GenerateRequest& request, const OnEvent& on_event);
  // Ends the Ask that is under way, if there is one.
  void Cancel() RENGA_EXCLUDES(mutex_);

 private:
  class Observer;

  void Post(std::function<void()> task) RENGA_EXCLUDES(mutex_);
  // Runs what is posted until `done` says so.
  void RunUntil(const std::function<bool()>& done) RENGA_EXCLUDES(mutex_);
  CallOrigin Origin();

  const std::string key_;
  InferenceClient client_;
  std::shared_ptr<GenerateCall> call_;  // Of the Ask under way.
  std::shared_ptr<Observer> observer_;  // The same.

  Mutex mutex_;
  CondVar posted_;
  std::deque<std::function<void()>> tasks_ RENGA_GUARDED_BY(mutex_);
  uint64_t asks_ RENGA_GUARDED_BY(mutex_) = 0;    // So many were started...
  bool asking_ RENGA_GUARDED_BY(mutex_) = false;  // ... and the last is under way.
};

}  // namespace renga
