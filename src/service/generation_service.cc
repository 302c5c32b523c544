// The checks in the order of their cost, then the way into the wait queue.

#include "service/generation_service.h"

#include <algorithm>
#include <random>
#include <utility>

#include "base/status_macros.h"
#include "batching/admission_forecast.h"
#include "renga/backend.h"
#include "service/request_check.h"
#include "service/text_stage.h"
#include "text/utf8.h"

namespace renga {
namespace {

int64_t PromptBytes(const PromptInput& prompt) {
  if (const auto* text = std::get_if<std::string>(&prompt)) {
    return static_cast<int64_t>(text->size());
  }
  if (const auto* ids = std::get_if<std::vector<TokenId>>(&prompt)) {
    return static_cast<int64_t>(ids->size() * sizeof(TokenId));
  }
  size_t bytes = 0;
  for (const ChatMessage& message : std::get<ChatInput>(prompt).messages) {
    bytes += sizeof(ChatMessage) + message.content.size();
  }
  return static_cast<int64_t>(bytes);
}

// One step of SplitMix64: equal to no earlier value for 2^64 calls.
uint64_t NextSeed(uint64_t& state) {
  uint64_t z = state += 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

// A stop string that is not UTF-8 could never be met in the text.
Status CheckStopUtf8(const std::vector<std::string>& stop) {
  for (size_t i = 0; i < stop.size(); ++i) {
    if (!FindInvalidUtf8(stop[i])) continue;
    return InvalidArgument("stop[" + std::to_string(i) + "]", "is not UTF-8");
  }
  return OkStatus();
}

RejectReason ReasonOf(const Status& status, RejectReason fallback) {
  return status.code() == StatusCode::kInvalidArgument ? fallback
                                                       : RejectReason::kBadRequest;
}

}  // namespace

// One request on its way through the pool.
class GenerationServiceImpl::Job final : public PromptJob {
 public:
  Job(GenerationServiceImpl& service, GenerateRequest request,
      std::unique_ptr<CountingSink> sink)
      : service_(service),
        request_(std::move(request)),
        sink_(std::move(sink)),
        bytes_(PromptBytes(request_.prompt)) {}

  RequestId id() const override { return request_.id; }
  int64_t bytes() const override { return bytes_; }
  CountingSink& sink() { return *sink_; }

  Status Prepare() override {
    RENGA_RETURN_IF_ERROR(CheckDeadline());
    const Clock& clock = service_.parts_.clock;
    const TimePoint begin = clock.Now();
    StatusOr<std::vector<TokenId>> prompt = service_.Encode(request_.prompt);
    service_.parts_.metrics.tokenize.Observe(clock.Now() - begin);
    RENGA_RETURN_IF_ERROR(prompt.status());
    reason_ = RejectReason::kTooLong;
    RENGA_RETURN_IF_ERROR(service_.CheckFits(static_cast<int64_t>(prompt->size())));
    prompt_ = *std::move(prompt);
    return CheckDeadline();
  }

  void Finish(Status status) override {
    if (status.ok()) return Submit();
    switch (status.code()) {
      case StatusCode::kCancelled:
        service_.parts_.metrics.CountCancellation(CancelStage::kQueued);
        [[fallthrough]];
      case StatusCode::kDeadlineExceeded:
        return EndEarly(std::move(status));
      case StatusCode::kUnavailable:
        return sink_->Refuse(RejectReason::kDraining, std::move(status));
      default: {
        const RejectReason reason = ReasonOf(status, reason_);
        return sink_->Refuse(reason, std::move(status));
      }
    }
  }

 private:
  Status CheckDeadline() const {
    if (!request_.deadline || service_.parts_.clock.Now() < *request_.deadline) {
      return OkStatus();
    }
    return DeadlineExceeded("the deadline passed before the request could start");
  }

  // Counted by its status, as if the engine had ended it.
  void EndEarly(Status status) {
    Completion completion;
    completion.status = std::move(status);
    completion.finish_reason = FinishReason::kCancelled;
    sink_->OnDone(completion);
  }

  void Submit() {
    const ModelInfo& model = service_.model_;
    const int64_t room = model.context_length - static_cast<int64_t>(prompt_.size());
    const int64_t wanted = request_.max_tokens.value_or(room + 1);
    EngineRequest out;
    out.id = request_.id;
    out.prompt = std::move(prompt_);
    out.sampling = request_.sampling;
    out.seed = request_.sampling.seed ? *request_.sampling.seed : service_.FreshSeed();
    out.max_tokens = std::min(wanted, room);
    out.max_tokens_given = wanted <= room;
    if (!request_.ignore_end_token) out.end_tokens = model.end_token_ids;
    out.stop_tokens = std::move(request_.stop_token_ids);
    out.arrival = request_.arrival;
    out.deadline = request_.deadline;
    CountingSink& sink = *sink_;
    out.sink = std::make_unique<TextStage>(service_.parts_.tokenizer,
                                           std::move(request_.stop), std::move(sink_));
    service_.Submit(out, sink);
  }

  GenerationServiceImpl& service_;
  GenerateRequest request_;
  std::unique_ptr<CountingSink> sink_;
  const int64_t bytes_;
  std::vector<TokenId> prompt_;
  RejectReason reason_ = RejectReason::kBadRequest;  // If Prepare fails now.
};

GenerationServiceImpl::GenerationServiceImpl(const GenerationOptions& options,
                                             ModelInfo model,
                                             const GenerationParts& parts)
    : options_(options), model_(std::move(model)), parts_(parts) {
  for (TokenId id = 0; id < static_cast<TokenId>(model_.vocab_size); ++id) {
    max_token_bytes_ = std::max(max_token_bytes_,
                                static_cast<int64_t>(parts_.tokenizer.Bytes(id).size()));
  }
  std::random_device device;
  seed_state_ = (uint64_t{device()} << 32) | device();
  pool_ = std::make_unique<PromptPool>(
      options_.pool, [this](RequestId id) { parts_.queue.PostCancel(id); });
}

GenerationServiceImpl::~GenerationServiceImpl() = default;

RequestId GenerationServiceImpl::NewRequestId() { return RequestId{++last_id_}; }

void GenerationServiceImpl::Generate(GenerateRequest request, TokenSink& client) {
  auto sink = std::make_unique<CountingSink>(client, parts_.metrics, parts_.clock, true,
                                             request.deadline);
  if (draining_) {
    return sink->Refuse(RejectReason::kDraining,
                        Unavailable("the server is shutting down"));
  }
  if (!ready_) {
    return sink->Refuse(RejectReason::kNotReady, Unavailable("the server is starting"));
  }
  Start(std::move(request), std::move(sink));
}

void GenerationServiceImpl::GenerateForWarmUp(GenerateRequest request,
                                              TokenSink& client) {
  Start(std::move(request),
        std::make_unique<CountingSink>(client, parts_.metrics, parts_.clock, false));
}

void GenerationServiceImpl::Start(GenerateRequest request,
                                  std::unique_ptr<CountingSink> sink) {
  if (request.id == RequestId{}) request.id = NewRequestId();
  if (request.arrival == TimePoint{}) request.arrival = parts_.clock.Now();
  Status status = CheckModelName(request.model, model_.name);
  if (status.ok()) status = CheckParameters(request, model_.vocab_size);
  if (status.ok()) status = CheckStopUtf8(request.stop);
  if (status.ok()) status = CheckPrompt(request.prompt, model_.vocab_size);
  if (!status.ok()) {
    return sink->Refuse(RejectReason::kBadRequest, std::move(status));
  }
  auto refused =
      pool_->TryAdd(std::make_unique<Job>(*this, std::move(request), std::move(sink)));
  if (refused == nullptr) return;
  static_cast<Job&>(*refused).sink().Refuse(RejectReason::kQueueFull, QueueFull());
}

StatusOr<std::vector<TokenId>> GenerationServiceImpl::Encode(
    const PromptInput& prompt) const {
  if (const auto* ids = std::get_if<std::vector<TokenId>>(&prompt)) return *ids;
  const auto* text = std::get_if<std::string>(&prompt);
  MarkedText marked;
  if (text != nullptr) {
    marked.text = *text;
  } else {
    if (parts_.chat_template == nullptr) {
      return InvalidArgument("chat", "no chat template: " + parts_.no_template_reason +
                                         "; send text or token_ids instead");
    }
    RENGA_ASSIGN_OR_RETURN(marked,
                           parts_.chat_template->Render(std::get<ChatInput>(prompt)));
  }
  // Refused before the work where no split into tokens could fit.
  const auto bytes = static_cast<int64_t>(marked.text.size());
  const int64_t least_tokens = bytes / max_token_bytes_;
  if (least_tokens >= model_.context_length) {
    return InvalidArgument(
        "prompt", "has " + std::to_string(bytes) + " bytes, at least " +
                      std::to_string(least_tokens) + " tokens; the context has " +
                      std::to_string(model_.context_length));
  }
  StatusOr<std::vector<TokenId>> ids = parts_.tokenizer.Encode(marked);
  if (!ids.ok() || text == nullptr || !parts_.tokenizer.add_bos_token()) return ids;
  if (const TokenId bos = parts_.tokenizer.bos_token_id(); bos >= 0) {
    ids->insert(ids->begin(), bos);
  }
  return ids;
}

Status GenerationServiceImpl::CheckFits(int64_t prompt_tokens) const {
  if (prompt_tokens == 0) return InvalidArgument("prompt", "has no tokens");
  if (prompt_tokens + 1 > model_.context_length) {
    return InvalidArgument("prompt",
                           "has " + std::to_string(prompt_tokens) +
                               " tokens; with one token of answer that must fit the "
                               "context of " +
                               std::to_string(model_.context_length));
  }
  const int64_t pages = PagesFor(prompt_tokens);
  if (pages > options_.kv_pages) {
    return InvalidArgument("prompt", "has " + std::to_string(prompt_tokens) +
                                         " tokens; the KV pool holds " +
                                         std::to_string(options_.kv_pages * kPageTokens));
  }
  return OkStatus();
}

void GenerationServiceImpl::Submit(EngineRequest& request, CountingSink& sink) {
  if (!parts_.board.Read().busy && parts_.queue.waiting_requests() == 0) {
    MutexLock lock(mutex_);
    work_since_ = parts_.clock.Now();
  }
  switch (parts_.queue.TryPush(request)) {
    case WaitQueue::PushResult::kOk:
      return;
    case WaitQueue::PushResult::kFull:
      return sink.Refuse(RejectReason::kQueueFull, QueueFull());
    case WaitQueue::PushResult::kClosed:
      return sink.Refuse(RejectReason::kDraining,
                         Unavailable("the server is shutting down"));
  }
}

// When to come back: what waits now, at the measured cost of a row.
Status GenerationServiceImpl::QueueFull() const {
  const EngineSnapshot engine = parts_.board.Read();
  const int64_t tokens = parts_.queue.waiting_tokens();
  const Duration ahead = PredictFirstToken(
      engine, {.requests = parts_.queue.waiting_requests(), .tokens = tokens}, {}, 0);
  return ResourceExhausted(
             "the queue is full: " + std::to_string(parts_.queue.waiting_requests()) +
             " requests with " + std::to_string(tokens) + " prompt tokens wait")
      .WithRetryAfter(std::clamp<Duration>(ahead, std::chrono::milliseconds(100),
                                           std::chrono::seconds(10)));
}

uint64_t GenerationServiceImpl::FreshSeed() {
  MutexLock lock(mutex_);
  return NextSeed(seed_state_);
}

void GenerationServiceImpl::Resume(RequestId id) { parts_.queue.PostResume(id); }

void GenerationServiceImpl::Cancel(RequestId id) {
  if (!pool_->Cancel(id)) parts_.queue.PostCancel(id);
}

StatusOr<std::vector<TokenId>> GenerationServiceImpl::Tokenize(
    const PromptInput& prompt) {
  RENGA_RETURN_IF_ERROR(CheckPrompt(prompt, model_.vocab_size));
  return Encode(prompt);
}

StatusOr<std::string> GenerationServiceImpl::Detokenize(const std::vector<TokenId>& ids) {
  RENGA_RETURN_IF_ERROR(CheckTokenIds("token_ids", ids, model_.vocab_size));
  std::string bytes;
  for (const TokenId id : ids) bytes += parts_.tokenizer.Bytes(id);
  std::string text;
  for (std::string_view rest = bytes; !rest.empty();) {
    const Utf8Char next = DecodeUtf8(rest);
    text += next.verdict == Utf8Char::Verdict::kValid ? rest.substr(0, next.length)
                                                      : kReplacementCharacter;
    rest.remove_prefix(next.length);
  }
  return text;
}

ModelInfo GenerationServiceImpl::GetModel() { return model_; }

LoadInfo GenerationServiceImpl::GetLoad() {
  const EngineSnapshot engine = parts_.board.Read();
  return {.ready = Ready(),
          .running = engine.running,
          .waiting = parts_.queue.waiting_requests(),
          .waiting_tokens = parts_.queue.waiting_tokens(),
          .max_sequences = engine.max_sequences,
          .pages_total = engine.pages_total,
          .pages_free = engine.pages_free,
          .pages_cached = engine.pages_cached,
          .busy_share = engine.busy_share};
}

bool GenerationServiceImpl::Ready() {
  if (!ready_ || draining_) return false;
  const EngineSnapshot engine = parts_.board.Read();
  if (!engine.busy && parts_.queue.waiting_requests() == 0) return true;
  TimePoint since = engine.last_progress;
  {
    // An engine that idled for an hour has not stalled when the next request comes.
    MutexLock lock(mutex_);
    since = std::max(since, work_since_);
  }
  return parts_.clock.Now() - since <= options_.stall;
}

void GenerationServiceImpl::SetReady(bool ready) { ready_ = ready; }

void GenerationServiceImpl::StartDrain() { draining_ = true; }

bool GenerationServiceImpl::WaitSubmitted(TimePoint deadline) {
  return pool_->WaitIdle(deadline);
}

}  // namespace renga
