#include "app/chat_client.h"

#include <optional>
#include <utility>

namespace renga {

class ChatClient::Observer final : public GenerateObserver {
 public:
  Observer(ChatClient& client, const ChatClient::OnEvent& on_event)
      : client_(client), on_event_(on_event) {}

  void OnEvent(size_t /*call*/, const TargetInfo& /*target*/,
               v1::GenerateResponse& event) override {
    on_event_(event);
    client_.call_->Next();
  }
  void OnEnd(size_t /*call*/, const Status& status) override { end_ = status; }

  void SetCancelled() { end_ = Cancelled("stopped"); }
  const std::optional<Status>& end() const { return end_; }

 private:
  ChatClient& client_;
  const ChatClient::OnEvent& on_event_;
  std::optional<Status> end_;
};

ChatClient::ChatClient(const std::string& target, const std::string& key)
    : key_(key), client_({MakeTargetChannel(target)}) {}

// What was cancelled may still have its end to come.
ChatClient::~ChatClient() {
  RunUntil([this] { return client_.calls().count() == 0; });
}

CallOrigin ChatClient::Origin() {
  CallOrigin origin;
  if (!key_.empty()) origin.metadata.emplace_back("authorization", "Bearer " + key_);
  origin.post = [this](std::function<void()> task) { Post(std::move(task)); };
  return origin;
}

StatusOr<v1::GetModelResponse> ChatClient::GetModel() {
  std::optional<Status> end;
  v1::GetModelResponse model;
  client_.GetModel(Origin(), [&](const Status& status, const TargetInfo& /*target*/,
                                 v1::GetModelResponse& response) {
    model.Swap(&response);
    end = status;
  });
  RunUntil([&] { return end.has_value(); });
  if (!end->ok()) return *end;
  return model;
}

Status ChatClient::Ask(const v1::GenerateRequest& request, const OnEvent& on_event) {
  {
    MutexLock lock(mutex_);
    ++asks_;
    asking_ = true;
  }
  observer_ = std::make_shared<Observer>(*this, on_event);
  call_ = client_.Generate(0, Origin(), request, observer_);
  RunUntil([this] { return observer_->end().has_value(); });
  Status end = *observer_->end();
  call_.reset();
  observer_.reset();
  MutexLock lock(mutex_);
  asking_ = false;
  return end;
}

// A cancel that comes too late must not end the next Ask.
void ChatClient::Cancel() {
  uint64_t meant = 0;
  {
    MutexLock lock(mutex_);
    if (!asking_) return;
    meant = asks_;
  }
  Post([this, meant] {
    {
      MutexLock lock(mutex_);
      if (!asking_ || asks_ != meant) return;
    }
    if (call_ == nullptr || observer_->end()) return;
    call_->Cancel();
    observer_->SetCancelled();
  });
}

void ChatClient::Post(std::function<void()> task) {
  MutexLock lock(mutex_);
  tasks_.push_back(std::move(task));
  posted_.NotifyAll();
}

void ChatClient::RunUntil(const std::function<bool()>& done) {
  while (!done()) {
    std::function<void()> task;
    {
      MutexLock lock(mutex_);
      while (tasks_.empty()) posted_.Wait(mutex_);
      task = std::move(tasks_.front());
      tasks_.pop_front();
    }
    task();
  }
}

}  // namespace renga
