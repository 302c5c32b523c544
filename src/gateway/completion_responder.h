// CompletionResponder: answers POST /v1/chat/completions and /v1/completions.
//
// A stream's head goes out with the first event, so that whatever fails before it is a
// plain HTTP status; after quiet_interval of waiting it goes out with a comment, and a
// later failure is an event (an error object, without [DONE] behind it).
//
// Flow control: the next message of a generation is read only after the last one is
// written, so a client that reads slowly holds up its own generations and nothing piles
// up here.
//
// Thread rule: everything on the exchange's loop; only the reading of a large body is
// done on the thread for long work.

#pragma once

#include <memory>
#include <string>
#include <vector>

#include "gateway/gateway_context.h"
#include "gateway/http_exchange.h"
#include "gateway/inference_client.h"
#include "gateway/openai_answer.h"
#include "gateway/openai_request.h"

namespace renga {

class CompletionResponder final
    : public HttpResponder,
      public GenerateObserver,
      public std::enable_shared_from_this<CompletionResponder> {
 public:
  CompletionResponder(GatewayContext& gateway, RequestScope scope,
                      std::shared_ptr<HttpExchange> exchange, bool chat)
      : gateway_(gateway),
        scope_(std::move(scope)),
        exchange_(std::move(exchange)),
        chat_(chat) {}

  void Start();

  // HttpResponder.
  void OnWritten() override;
  void OnQuiet() override;
  void OnStop() override;
  void OnClosed() override;

 private:
  // GenerateObserver.
  void OnEvent(size_t call, const TargetInfo& target,
               v1::GenerateResponse& event) override;
  void OnEnd(size_t call, const Status& status) override;

  void OnParsed(StatusOr<CompletionRequest> parsed);
  Status ReadDeadlineHeader(CompletionRequest& parsed) const;
  void StartStream(const CompletionRequest& parsed);
  void StartWhole(const CompletionRequest& parsed);
  void OnAnswer(size_t prompt, const Status& status, const TargetInfo& target,
                v1::GenerateUnaryResponse& answer);
  void Send();
  bool HoldsBack() const;
  void Fail(const Status& status);
  // Of one prompt, by the server.
  void FailPrompt(size_t prompt, const Status& status);
  void CancelCalls();

  GatewayContext& gateway_;
  const RequestScope scope_;
  const std::shared_ptr<HttpExchange> exchange_;
  const bool chat_;
  AnswerShape shape_;
  size_t prompts_ = 0;
  std::unique_ptr<StreamedAnswer> stream_;  // One of the two.
  std::unique_ptr<WholeAnswer> whole_;
  std::vector<std::shared_ptr<GenerateCall>> streams_;
  std::vector<bool> has_begun_;  // Of streams_: something of it has come.
  size_t ended_calls_ = 0;       // Of streams_.
  bool waited_ = false;          // So long that the client must hear something.
  std::vector<std::shared_ptr<ClientCall>> calls_;
  bool begun_ = false;    // The head is sent.
  bool writing_ = false;  // Between Write and OnWritten.
  bool ended_ = false;    // Everything is said.
  std::string pending_;   // Events to write.
  // Generations whose last message is in pending_, and in what is being written.
  std::vector<size_t> pending_readers_;
  std::vector<size_t> written_readers_;
};

}  // namespace renga
