#include "bench/load/load_client.h"

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/support/client_callback.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <random>
#include <thread>

#include "renga/v1/inference.grpc.pb.h"

namespace renga {
namespace {

using Clock = std::chrono::steady_clock;

double Milliseconds(Clock::duration duration) {
  return std::chrono::duration<double, std::milli>(duration).count();
}

constexpr const char* kWords[] = {
    "order",    "parcel",    "invoice",  "refund",       "address", "account",
    "tomorrow", "delivery",  "morning",  "payment",      "card",    "charged",
    "twice",    "cancel",    "booking",  "subscription", "change",  "flight",
    "weather",  "translate", "sentence", "friendly",     "short",   "answer",
    "explain",  "battery",   "phone",    "screen",       "broken",  "warranty"};

std::string Message(std::mt19937_64& rng) {
  const size_t length = 50 + rng() % 51;
  std::string text = std::to_string(rng() % 10000);
  while (text.size() < length) {
    text += ' ';
    text += kWords[rng() % std::size(kWords)];
  }
  text.resize(length);
  return text;
}

// What the calls report to, and what counts them.
class Tally {
 public:
  void Started() {
    std::lock_guard lock(mutex_);
    ++running_;
  }
  // Calls `with` under the lock, then counts the end.
  template <class With>
  void Ended(const With& with) {
    std::lock_guard lock(mutex_);
    with(result_);
    --running_;
    changed_.notify_all();
  }
  LoadResult Wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return running_ == 0; });
    return std::move(result_);
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int64_t running_ = 0;
  LoadResult result_;
};

// One streamed request; deletes itself when it has ended.
class Call final : public grpc::ClientReadReactor<v1::GenerateResponse> {
 public:
  Call(v1::Inference::Stub& stub, const LoadOptions& options, std::string text,
       Tally& tally, std::function<void()> ended)
      : tally_(tally), ended_(std::move(ended)) {
    v1::ChatMessage& message = *request_.mutable_chat()->add_messages();
    message.set_role("user");
    message.set_content(std::move(text));
    request_.mutable_sampling()->set_temperature(0.0f);
    request_.set_max_tokens(options.max_tokens);
    request_.set_ignore_end_token(true);
    if (options.deadline_ms > 0) request_.set_deadline_ms(options.deadline_ms);
    tally_.Started();
    start_ = last_ = Clock::now();
    stub.async()->Generate(&context_, &request_, this);
    StartRead(&response_);
    StartCall();
  }

 private:
  void OnReadDone(bool ok) override {
    if (!ok) return;
    const Clock::time_point now = Clock::now();
    if (response_.has_chunk()) {
      if (chunks_ == 0) {
        first_ms_ = Milliseconds(now - start_);
      } else {
        max_gap_ms_ = std::max(max_gap_ms_, Milliseconds(now - last_));
      }
      ++chunks_;
      last_ = now;
    }
    StartRead(&response_);
  }

  void OnDone(const grpc::Status& status) override {
    const double elapsed = Milliseconds(Clock::now() - start_);
    tally_.Ended([&](LoadResult& result) {
      switch (status.error_code()) {
        case grpc::StatusCode::OK:
          ++result.ok;
          result.response_ms.push_back(elapsed);
          result.first_token_ms.push_back(first_ms_);
          result.max_gap_ms.push_back(max_gap_ms_);
          break;
        case grpc::StatusCode::RESOURCE_EXHAUSTED:
          ++result.refused;
          result.refusal_ms.push_back(elapsed);
          break;
        case grpc::StatusCode::DEADLINE_EXCEEDED:
          ++result.late;
          break;
        default:
          ++result.failed;
      }
      if (ended_) ended_();
    });
    delete this;
  }

  Tally& tally_;
  const std::function<void()> ended_;
  grpc::ClientContext context_;
  v1::GenerateRequest request_;
  v1::GenerateResponse response_;
  Clock::time_point start_;
  Clock::time_point last_;
  double first_ms_ = 0.0;
  double max_gap_ms_ = 0.0;
  int64_t chunks_ = 0;
};

void RunOpenLoop(const LoadOptions& options, v1::Inference::Stub& stub, Tally& tally) {
  std::mt19937_64 rng(options.seed);
  std::exponential_distribution<double> gap(options.rate);
  const Clock::time_point begin = Clock::now();
  double at = 0.0;
  while ((at += gap(rng)) < options.seconds) {
    std::this_thread::sleep_until(begin + std::chrono::duration_cast<Clock::duration>(
                                              std::chrono::duration<double>(at)));
    new Call(stub, options, Message(rng), tally, nullptr);
  }
}

// One thread per user: thinking is sleeping.
void RunUser(const LoadOptions& options, int user, v1::Inference::Stub& stub,
             Tally& tally) {
  std::mt19937_64 rng(options.seed * 1000 + static_cast<uint64_t>(user));
  std::uniform_real_distribution<double> think(options.think_min, options.think_max);
  const Clock::time_point end =
      Clock::now() + std::chrono::duration_cast<Clock::duration>(
                         std::chrono::duration<double>(options.seconds));
  std::mutex mutex;
  std::condition_variable changed;
  while (true) {
    std::this_thread::sleep_for(std::chrono::duration<double>(think(rng)));
    if (Clock::now() >= end) return;
    bool ended = false;
    new Call(stub, options, Message(rng), tally, [&] {
      std::lock_guard lock(mutex);
      ended = true;
      changed.notify_one();
    });
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return ended; });
  }
}

}  // namespace

double Quantile(const std::vector<double>& sorted, double share) {
  if (sorted.empty()) return 0.0;
  const auto index = static_cast<size_t>(share * static_cast<double>(sorted.size()));
  return sorted[std::min(index, sorted.size() - 1)];
}

LoadResult RunLoad(const LoadOptions& options) {
  const auto stub = v1::Inference::NewStub(
      grpc::CreateChannel(options.address, grpc::InsecureChannelCredentials()));
  Tally tally;
  const Clock::time_point begin = Clock::now();
  if (options.users > 0) {
    std::vector<std::thread> users;
    for (int user = 0; user < options.users; ++user) {
      users.emplace_back(
          [&options, user, &stub, &tally] { RunUser(options, user, *stub, tally); });
    }
    for (std::thread& user : users) user.join();
  } else {
    RunOpenLoop(options, *stub, tally);
  }
  LoadResult result = tally.Wait();
  result.seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  for (std::vector<double>* values : {&result.response_ms, &result.first_token_ms,
                                      &result.max_gap_ms, &result.refusal_ms}) {
    std::sort(values->begin(), values->end());
  }
  return result;
}

}  // namespace renga
