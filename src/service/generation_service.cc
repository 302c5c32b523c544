// The checks in the order of their cost, then the way into the wait queue.

#include "service/generation_service.h"

#include <algorithm>
#include <random>
#include <utility>

#include "base/status_macros.h"
#include "batching/admission_forecast.h"
#include "renga/backend.h"
#include "service/admission.h"
#include "service/request_check.h"
#include "service/text_stage.h"
#include "text/stream_decoder.h"

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

// The namespace of cached keys and values. The length in front keeps pairs apart whose
// parts would join to the same bytes.
std::string CacheNamespace(std::string_view tenant, std::string_view salt) {
  std::string name = std::to_string(tenant.size());
  name += ':';
  name += tenant;
  name += salt;
  return name;
}

Status CheckDeadline(const GenerateRequest& request, TimePoint now) {
  if (!request.deadline || now < *request.deadline) return OkStatus();
  return DeadlineExceeded("the deadline passed before the request could start");
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
  std::optional<TimePoint> deadline() const override { return request_.deadline; }
  CountingSink& sink() { return *sink_; }

  Status Prepare() override {
    const Clock& clock = service_.parts_.clock;
    const TimePoint begin = clock.Now();
    RENGA_RETURN_IF_ERROR(CheckDeadline(request_, begin));
    StatusOr<std::vector<TokenId>> prompt = service_.Encode(request_.prompt);
    const TimePoint end = clock.Now();
    if (sink_->counted()) service_.parts_.metrics.tokenize.Observe(end - begin);
    RENGA_RETURN_IF_ERROR(prompt.status());
    service_.parts_.metrics.flight_recorder.Span(sink_->ticket(), FlightEvent::kTokenise,
                                                 begin, end,
                                                 static_cast<int64_t>(prompt->size()));
    reason_ = RejectReason::kTooLong;
    RENGA_RETURN_IF_ERROR(service_.CheckFits(static_cast<int64_t>(prompt->size())));
    prompt_ = *std::move(prompt);
    return CheckDeadline(request_, clock.Now());
  }

  void Finish(Status status) override {
    if (status.ok()) {
      CountingSink& sink = *sink_;
      EngineRequest out = Take();
      return service_.Submit(out, sink);
    }
    switch (status.code()) {
      case StatusCode::kCancelled:
        if (sink_->counted()) {
          service_.parts_.metrics.CountCancellation(CancelStage::kQueued);
        }
        [[fallthrough]];
      case StatusCode::kDeadlineExceeded:
        return sink_->EndUnstarted(std::move(status));
      case StatusCode::kUnavailable:
        return sink_->Refuse(RejectReason::kDraining, std::move(status));
      default: {
        const RejectReason reason = ReasonOf(status, reason_);
        return sink_->Refuse(reason, std::move(status));
      }
    }
  }

 private:
  // The request as the engine wants it; the job is empty afterwards.
  EngineRequest Take() {
    const ModelInfo& model = service_.model_;
    const GenerationOptions& options = service_.options_;
    const int64_t room = model.context_length - static_cast<int64_t>(prompt_.size());
    const int64_t wanted = request_.max_tokens.value_or(room + 1);
    EngineRequest out;
    out.id = request_.id;
    out.prompt = std::move(prompt_);
    out.sampling = std::move(request_.sampling);
    out.seed = out.sampling.seed ? *out.sampling.seed : service_.FreshSeed();
    out.max_tokens = std::min(wanted, room);
    out.max_tokens_given = wanted <= room;
    if (!request_.ignore_end_token) out.end_tokens = model.end_token_ids;
    out.stop_tokens = std::move(request_.stop_token_ids);
    out.min_tokens = std::min(request_.min_tokens, out.max_tokens);
    out.n = request_.n;
    out.logprobs = request_.logprobs.value_or(-1);
    out.prompt_logprobs = request_.prompt_logprobs.value_or(-1);
    out.echo = request_.echo;
    out.priority = request_.priority;
    out.cache_salt = CacheNamespace(request_.tenant, request_.cache_salt);
    out.tenant = std::move(request_.tenant);
    out.use_prefix_cache = options.prefix_cache && request_.use_prefix_cache;
    out.counted = sink_->counted();
    out.ticket = sink_->ticket();
    if (out.counted) out.first_token_limit = options.first_token_limit;
    out.arrival = request_.arrival;
    out.deadline = request_.deadline;

    const Tokenizer& tokenizer = service_.parts_.tokenizer;
    TextStageOptions text{
        .stop = std::move(request_.stop), .n = out.n, .min_tokens = out.min_tokens};
    if (out.echo) text.prompt_text = DecodeAll(tokenizer, out.prompt);
    out.sink = std::make_unique<TextStage>(tokenizer, std::move(text), std::move(sink_));
    return out;
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
      options_.pool, parts_.clock, [this](RequestId id) { parts_.queue.PostCancel(id); });
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
  request.use_prefix_cache = false;
  Start(std::move(request),
        std::make_unique<CountingSink>(client, parts_.metrics, parts_.clock, false));
}

void GenerationServiceImpl::Start(GenerateRequest request,
                                  std::unique_ptr<CountingSink> sink) {
  const TimePoint now = parts_.clock.Now();
  if (request.id == RequestId{}) request.id = NewRequestId();
  if (request.arrival == TimePoint{}) request.arrival = now;
  if (Status status = CheckRequest(request); !status.ok()) {
    return sink->Refuse(RejectReason::kBadRequest, std::move(status));
  }
  if (Status status = CheckDeadline(request, now); !status.ok()) {
    return sink->EndUnstarted(std::move(status));
  }
  if (sink->counted()) {
    if (Status status = CheckRoom(); !status.ok()) {
      return sink->Refuse(RejectReason::kQueueFull, std::move(status));
    }
    // Its own length is not known yet: what waits already may be too much.
    Status status = CheckTime(request.arrival, request.deadline, 0);
    if (!status.ok()) return sink->Refuse(RejectReason::kDeadline, std::move(status));
  }
  sink->Record(request);
  auto refused =
      pool_->TryAdd(std::make_unique<Job>(*this, std::move(request), std::move(sink)));
  if (refused == nullptr) return;
  static_cast<Job&>(*refused).sink().Refuse(RejectReason::kQueueFull, PoolFull());
}

Status GenerationServiceImpl::CheckRequest(const GenerateRequest& request) const {
  RENGA_RETURN_IF_ERROR(CheckModelName(request.model, model_.name));
  RENGA_RETURN_IF_ERROR(CheckParameters(request, model_.vocab_size));
  if (request.n > options_.max_sequences) {
    return InvalidArgument(
        "n", "is " + std::to_string(request.n) + "; the server computes at most " +
                 std::to_string(options_.max_sequences) + " answers at a time");
  }
  return CheckPrompt(request.prompt, model_.vocab_size);
}

Status GenerationServiceImpl::CheckRoom() const {
  const int64_t requests = parts_.queue.waiting_requests();
  const bool tokens_full = parts_.queue.waiting_tokens() >= options_.queue.max_tokens;
  if (requests >= options_.queue.max_requests || (requests > 0 && tokens_full)) {
    return QueueFull();
  }
  return OkStatus();
}

Status GenerationServiceImpl::CheckTime(TimePoint arrival,
                                        const std::optional<TimePoint>& deadline,
                                        int64_t uncached_tokens) const {
  // An idle engine refuses nobody: what was measured in a slow moment would else hold for
  // ever, as no step would come to correct it.
  if (!parts_.board.Read().busy && parts_.queue.waiting_requests() == 0) {
    return OkStatus();
  }
  return CheckFirstToken(
      {.arrival = arrival, .deadline = deadline, .limit = options_.first_token_limit},
      parts_.clock.Now(), PredictFirst(uncached_tokens));
}

Duration GenerationServiceImpl::PredictFirst(int64_t uncached_tokens) const {
  const EngineSnapshot engine = parts_.board.Read();
  // As much of what waits is cached as lately was.
  const double share = std::clamp(engine.cached_share, 0.0, 1.0);
  const auto tokens = static_cast<double>(parts_.queue.waiting_tokens());
  return PredictFirstToken(engine,
                           {.requests = parts_.queue.waiting_requests(),
                            .tokens = static_cast<int64_t>(tokens * (1.0 - share))},
                           options_.window, uncached_tokens);
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

// The engine alone knows what is cached, but answers at its next step border only. A long
// beginning may all be cached; of the last page as much is taken to be as lately was.
int64_t GenerationServiceImpl::LikelyUncached(const EngineRequest& request) const {
  const auto tokens = static_cast<int64_t>(request.prompt.size());
  if (!request.use_prefix_cache || request.prompt_logprobs >= 0) return tokens;
  const double share = std::clamp(parts_.board.Read().cached_share, 0.0, 1.0);
  const auto last = static_cast<double>(std::min<int64_t>(tokens, kPageTokens));
  return static_cast<int64_t>(last * (1.0 - share));
}

void GenerationServiceImpl::Submit(EngineRequest& request, CountingSink& sink) {
  if (sink.counted()) {
    request.assumed_uncached = LikelyUncached(request);
    Status status =
        CheckTime(request.arrival, request.deadline, request.assumed_uncached);
    if (!status.ok()) return sink.Refuse(RejectReason::kDeadline, std::move(status));
  }
  if (!parts_.board.Read().busy && parts_.queue.waiting_requests() == 0) {
    MutexLock lock(mutex_);
    work_since_ = parts_.clock.Now();
  }
  request.queued = parts_.clock.Now();
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

// When to come back: once what waits now has been computed, as far as that is known.
Status GenerationServiceImpl::QueueFull() const {
  return ResourceExhausted(
             "the queue is full: " + std::to_string(parts_.queue.waiting_requests()) +
             " requests with " + std::to_string(parts_.queue.waiting_tokens()) +
             " prompt tokens wait")
      .WithRetryAfter(RetryDelay(PredictFirst(0)));
}

// The requests whose prompts are not encoded yet are too many, or too long.
Status GenerationServiceImpl::PoolFull() const {
  const PromptPool::Backlog backlog = pool_->backlog();
  return ResourceExhausted("the queue is full: " + std::to_string(backlog.jobs) +
                           " requests with " + std::to_string(backlog.bytes) +
                           " bytes of prompts wait to be encoded")
      .WithRetryAfter(RetryDelay(PredictFirst(0)));
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
  return DecodeAll(parts_.tokenizer, ids);
}

std::string_view GenerationServiceImpl::TokenBytes(TokenId id) {
  return parts_.tokenizer.Bytes(id);
}

ModelInfo GenerationServiceImpl::GetModel() { return model_; }

LoadInfo GenerationServiceImpl::GetLoad() {
  constexpr int64_t kUsualPrompt = 64;
  const EngineSnapshot engine = parts_.board.Read();
  return {.ready = Ready(),
          .running = engine.running,
          .waiting = parts_.queue.waiting_requests(),
          .waiting_tokens = parts_.queue.waiting_tokens(),
          .max_sequences = options_.max_sequences,
          .max_waiting = options_.queue.max_requests,
          .max_waiting_tokens = options_.queue.max_tokens,
          .pages_total = engine.pages_total,
          .pages_free = engine.pages_free,
          .pages_cached = engine.pages_cached,
          .busy_share = engine.busy_share,
          .predicted_first_token = PredictFirst(kUsualPrompt)};
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
