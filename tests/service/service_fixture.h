// A GenerationServiceImpl over a queue that the test empties by hand, in the engine's
// place. What stands in the queue counts as waiting until it is released: Submitted does
// that, Take alone does not.

#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "batching/admission_forecast.h"
#include "service/generation_service.h"
#include "tests/fakes/collecting_sink.h"
#include "tests/fakes/manual_clock.h"

namespace renga {

inline constexpr TokenId kBos = 256;
inline constexpr TokenId kEnd = 257;

// Every byte is a token; 256 and 257 are control tokens "<bos>" and "<end>".
class ByteTokenizer final : public Tokenizer {
 public:
  ByteTokenizer() {
    for (int b = 0; b < 256; ++b) bytes_.push_back(std::string(1, static_cast<char>(b)));
  }
  StatusOr<std::vector<TokenId>> Encode(const MarkedText& text) const override {
    if (gate) gate();
    std::vector<TokenId> ids;
    for (const char c : text.text) ids.push_back(static_cast<unsigned char>(c));
    return ids;
  }
  std::string_view Bytes(TokenId id) const override {
    return id < 256 ? std::string_view(bytes_[static_cast<size_t>(id)])
                    : std::string_view();
  }
  bool IsControl(TokenId id) const override { return id >= 256; }
  int64_t vocab_size() const override { return 258; }
  TokenId bos_token_id() const override { return kBos; }
  bool add_bos_token() const override { return true; }
  std::span<const TokenId> end_token_ids() const override { return ends_; }

  std::function<void()> gate;  // Runs inside Encode.

 private:
  std::vector<std::string> bytes_;
  std::vector<TokenId> ends_ = {kEnd};
};

// Where a thread waits until another opens it.
class Gate {
 public:
  void Wait() RENGA_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    while (!open_) changed_.Wait(mutex_);
  }
  void Open() RENGA_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    open_ = true;
    changed_.NotifyAll();
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  bool open_ RENGA_GUARDED_BY(mutex_) = false;
};

class ServiceFixture : public testing::Test {
 protected:
  static constexpr int64_t kContext = 500;

  void Make(int64_t kv_pages = 6, WaitQueue::Limits limits = {}) {
    queue_ = std::make_unique<WaitQueue>(limits);
    options_.kv_pages = kv_pages;
    options_.queue = limits;
    service_ = std::make_unique<GenerationServiceImpl>(
        options_, TinyInfo(),
        GenerationParts{.tokenizer = tokenizer_,
                        .chat_template = chat_template_.get(),
                        .no_template_reason = "the model file has none",
                        .queue = *queue_,
                        .board = board_,
                        .metrics = metrics_,
                        .clock = clock_});
    service_->SetReady(true);
  }

  static ModelInfo TinyInfo() {
    ModelInfo info;
    info.name = "tiny";
    info.context_length = kContext;
    info.vocab_size = 258;
    info.end_token_ids = {kEnd};
    info.bos_token_id = kBos;
    return info;
  }

  void UseTemplate(const std::string& source) {
    auto parsed = ChatTemplate::Parse(source);
    ASSERT_TRUE(parsed.ok()) << parsed.status().ToString();
    chat_template_ = *std::move(parsed);
  }

  static GenerateRequest Request(PromptInput prompt) {
    GenerateRequest request;
    request.prompt = std::move(prompt);
    return request;
  }

  // What a request that must fail is told.
  Status Refusal(GenerateRequest request) {
    CollectingSink sink;
    service_->Generate(std::move(request), sink);
    EXPECT_TRUE(service_->WaitSubmitted(TimePoint::max()));
    for (EngineRequest& wrong : queue_->Take(TimePoint{}).requests) {
      ADD_FAILURE() << "it reached the engine";
      End(wrong);
    }
    EXPECT_TRUE(sink.done());
    return sink.completion().status;
  }

  // The request as the engine gets it.
  EngineRequest Submitted(GenerateRequest request, TokenSink& sink) {
    service_->Generate(std::move(request), sink);
    EXPECT_TRUE(service_->WaitSubmitted(TimePoint::max()));
    WaitQueue::Mail mail = queue_->Take(TimePoint{});
    EXPECT_EQ(mail.requests.size(), 1u);
    if (mail.requests.empty()) return {};
    EngineRequest& taken = mail.requests[0];
    queue_->Release(1, static_cast<int64_t>(taken.prompt.size()));
    return std::move(taken);
  }

  static void End(EngineRequest& request, Status status = OkStatus()) {
    Completion completion;
    completion.status = std::move(status);
    completion.finish_reason = FinishReason::kStop;
    if (request.sink != nullptr) request.sink->OnDone(completion);
  }

  // What the engine tells once it has measured itself; it is idle.
  static EngineSnapshot Measured() {
    EngineSnapshot engine;
    engine.busy = true;
    engine.max_sequences = 64;
    engine.decode_step = std::chrono::milliseconds(10);
    engine.slice_rows = 10;
    engine.slice_step = std::chrono::milliseconds(50);
    engine.full_rows = 100;
    engine.full_step = std::chrono::milliseconds(1000);
    engine.residence = std::chrono::milliseconds(200);
    return engine;
  }
  // What the service must predict then.
  Duration Predicted(int64_t uncached_tokens) const {
    return PredictFirstToken(
        board_.Read(),
        {.requests = queue_->waiting_requests(), .tokens = queue_->waiting_tokens()},
        options_.window, uncached_tokens);
  }
  // Puts a request with so many tokens in front of those that come.
  void Wait(int64_t tokens, uint64_t id = 1 << 20) {
    EngineRequest request;
    request.id = RequestId{id};
    request.prompt.resize(static_cast<size_t>(tokens), 1);
    ASSERT_EQ(queue_->TryPush(request), WaitQueue::PushResult::kOk);
  }

  double Count(const std::string& series) const {
    const std::string text = metrics_.Serialize();
    const size_t at = text.find(series + ' ');
    return at == std::string::npos ? -1 : std::stod(text.substr(at + series.size() + 1));
  }
  double Outcomes(const std::string& outcome) const {
    return Count("renga_requests_total{model=\"tiny\",outcome=\"" + outcome + "\"}");
  }
  double Rejections(const std::string& reason) const {
    return Count("renga_rejections_total{model=\"tiny\",reason=\"" + reason + "\"}");
  }
  double AllOutcomes() const {
    return Outcomes("ok") + Outcomes("error") + Outcomes("cancelled") +
           Outcomes("deadline") + Outcomes("rejected");
  }

  ByteTokenizer tokenizer_;
  std::unique_ptr<ChatTemplate> chat_template_;
  GenerationOptions options_;
  SnapshotBoard board_;
  ServerMetrics metrics_{"tiny", "fake", {.recorder = {.requests = 16}}};
  ManualClock clock_;
  std::unique_ptr<WaitQueue> queue_;
  std::unique_ptr<GenerationServiceImpl> service_;
};

}  // namespace renga
