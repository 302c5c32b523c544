#include "gateway/completion_responder.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "gateway/http_error.h"

namespace renga {
namespace {

// A body larger than this is read on the thread for long work: it would hold up the other
// connections of its loop.
constexpr size_t kLongBody = 32 << 10;
// Of a stream of several prompts: held back until something of each has come.
constexpr size_t kMostHeldBack = 4 << 10;
// The limit of `deadline_ms`, in which the header travels.
constexpr int64_t kMaxDeadlineMs = 86'400'000;

StatusOr<CompletionRequest> Parse(const std::string& body, bool chat, bool lenient) {
  return chat ? ParseChatRequest(body, lenient) : ParseCompletionRequest(body, lenient);
}

}  // namespace

void CompletionResponder::Start() {
  const std::string& body = exchange_->request().body;
  if (body.size() <= kLongBody) {
    return OnParsed(Parse(body, chat_, gateway_.settings.lenient));
  }
  gateway_.post_work([self = shared_from_this()] {
    auto parsed = std::make_shared<StatusOr<CompletionRequest>>(Parse(
        self->exchange_->request().body, self->chat_, self->gateway_.settings.lenient));
    self->exchange_->Post([self, parsed] { self->OnParsed(std::move(*parsed)); });
  });
}

void CompletionResponder::OnParsed(StatusOr<CompletionRequest> parsed) {
  if (exchange_->done() || ended_) return;
  if (!parsed.ok()) return Fail(parsed.status());
  if (Status status = ReadDeadlineHeader(*parsed); !status.ok()) return Fail(status);
  const AnswerHead head{.id = (chat_ ? "chatcmpl-" : "cmpl-") + RandomName(24),
                        .created = UnixSeconds(),
                        .fingerprint = ""};
  shape_ = parsed->shape;
  prompts_ = parsed->prompts.size();
  if (shape_.stream) {
    stream_ = std::make_unique<StreamedAnswer>(shape_, head, prompts_);
    StartStream(*parsed);
  } else {
    whole_ = std::make_unique<WholeAnswer>(shape_, head, prompts_);
    StartWhole(*parsed);
  }
}

// x-deadline-ms: the same as the field; the earlier one counts.
Status CompletionResponder::ReadDeadlineHeader(CompletionRequest& parsed) const {
  const std::string* text = exchange_->request().Header("x-deadline-ms");
  if (text == nullptr) return OkStatus();
  int64_t milliseconds = 0;
  const char* const text_end = text->data() + text->size();
  const auto [end, error] = std::from_chars(text->data(), text_end, milliseconds);
  if (error != std::errc() || end != text_end || milliseconds < 1 ||
      milliseconds > kMaxDeadlineMs) {
    return InvalidArgument("x-deadline-ms", "must be a number of milliseconds, 1 to " +
                                                std::to_string(kMaxDeadlineMs));
  }
  for (v1::GenerateRequest& prompt : parsed.prompts) {
    if (!prompt.has_deadline_ms() || prompt.deadline_ms() > milliseconds) {
      prompt.set_deadline_ms(milliseconds);
    }
  }
  return OkStatus();
}

// ---- Whole answers -------------------------------------------------------------------

void CompletionResponder::StartWhole(const CompletionRequest& parsed) {
  for (size_t i = 0; i < parsed.prompts.size(); ++i) {
    calls_.push_back(gateway_.client.GenerateUnary(
        OriginOf(scope_, exchange_), parsed.prompts[i],
        [self = shared_from_this(), i](const Status& status, const TargetInfo& target,
                                       v1::GenerateUnaryResponse& answer) {
          self->OnAnswer(i, status, target, answer);
        }));
  }
}

void CompletionResponder::OnAnswer(size_t prompt, const Status& status,
                                   const TargetInfo& target,
                                   v1::GenerateUnaryResponse& answer) {
  if (ended_) return;
  if (!status.ok()) return FailPrompt(prompt, status);
  whole_->SetFingerprint(target.numerics_id);
  if (!whole_->Add(prompt, std::move(answer))) return;
  ended_ = true;
  HttpResponse response{.body = whole_->Body()};
  response.Set("Content-Type", "application/json");
  AddScopeHeaders(scope_, response);
  exchange_->Respond(std::move(response));
}

// ---- Streams -------------------------------------------------------------------------

void CompletionResponder::StartStream(const CompletionRequest& parsed) {
  has_begun_.resize(parsed.prompts.size());
  for (size_t i = 0; i < parsed.prompts.size(); ++i) {
    streams_.push_back(gateway_.client.Generate(i, OriginOf(scope_, exchange_),
                                                parsed.prompts[i], shared_from_this()));
  }
}

void CompletionResponder::OnEvent(size_t call, const TargetInfo& target,
                                  v1::GenerateResponse& event) {
  if (ended_) return;
  has_begun_[call] = true;
  stream_->SetFingerprint(target.numerics_id);
  const std::string events = stream_->OnEvent(call, event);
  if (events.empty()) return streams_[call]->Next();
  pending_ += events;
  pending_readers_.push_back(call);
  Send();
}

// The stream ends with the last call, not with the last Finished: a call whose end nobody
// reads would never be over.
void CompletionResponder::OnEnd(size_t call, const Status& status) {
  if (ended_) return;
  if (!status.ok()) return FailPrompt(call, status);
  if (++ended_calls_ < streams_.size()) return;
  if (!stream_->complete()) return Fail(Internal("the server broke off its answer"));
  ended_ = true;
  pending_ += stream_->End();
  Send();
}

// A prompt that is refused should refuse the lot with a status, not break off the stream
// of the others.
bool CompletionResponder::HoldsBack() const {
  return !begun_ && !ended_ && !waited_ && pending_.size() < kMostHeldBack &&
         std::find(has_begun_.begin(), has_begun_.end(), false) != has_begun_.end();
}

void CompletionResponder::Send() {
  if (writing_ || pending_.empty() || exchange_->done()) return;
  if (HoldsBack()) {
    for (const size_t call : std::exchange(pending_readers_, {})) streams_[call]->Next();
    return;
  }
  if (!std::exchange(begun_, true)) {
    HttpResponse head;
    head.Set("Content-Type", "text/event-stream; charset=utf-8");
    head.Set("Cache-Control", "no-cache");
    head.Set("X-Accel-Buffering", "no");  // nginx would hold the events back.
    AddScopeHeaders(scope_, head);
    exchange_->BeginStream(std::move(head));
  }
  writing_ = true;
  written_readers_ = std::exchange(pending_readers_, {});
  exchange_->Write(std::exchange(pending_, {}));
  if (ended_) exchange_->EndStream();
}

void CompletionResponder::OnWritten() {
  writing_ = false;
  for (const size_t call : std::exchange(written_readers_, {})) streams_[call]->Next();
  Send();
}

void CompletionResponder::OnQuiet() {
  if (stream_ == nullptr || writing_ || ended_) return;
  waited_ = true;
  pending_ += kSseKeepAlive;
  Send();
}

// ---- Ends ----------------------------------------------------------------------------

// With an HTTP status if nothing was sent, else as the stream's last event.
void CompletionResponder::Fail(const Status& status) {
  ended_ = true;
  CancelCalls();
  if (begun_) {
    pending_ += SseEvent(ErrorBody(status));
    return Send();
  }
  HttpResponse response = ErrorResponse(status);
  AddScopeHeaders(scope_, response);
  exchange_->Respond(std::move(response));
}

void CompletionResponder::FailPrompt(size_t prompt, const Status& status) {
  Fail(Status(status).WithField(
      ClientFieldName(status.field(), shape_, prompt, prompts_)));
}

void CompletionResponder::OnStop() {
  if (!ended_) Fail(Unavailable("the server is shutting down"));
}

void CompletionResponder::OnClosed() {
  ended_ = true;
  CancelCalls();
}

void CompletionResponder::CancelCalls() {
  for (const auto& call : std::exchange(calls_, {})) call->Cancel();
  for (const auto& stream : streams_) stream->Cancel();
}

}  // namespace renga
