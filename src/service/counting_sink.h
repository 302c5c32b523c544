// CountingSink: the last sink before the transport's; counts how the request ended and
// how long it took.
//
// Every request that reaches the service gets one, so `renga_requests_total` grows by
// exactly one per request, whichever thread ends it. A RESOURCE_EXHAUSTED of the engine
// is a refusal like those of the service: its first token could not have come in time.
// It also closes the request's timeline in the flight recorder.
//
// Thread rule: that of TokenSink.

#pragma once

#include <optional>

#include "metrics/server_metrics.h"
#include "renga/clock.h"
#include "renga/token_sink.h"

namespace renga {

class CountingSink final : public TokenSink {
 public:
  // `client` lives until its OnDone. A request that the server sends to itself
  // (`counted` false) leaves no trace in the counters. A cancel at `deadline` or just
  // before it counts as the deadline: the client's own clock ran out and it hung up.
  CountingSink(TokenSink& client, ServerMetrics& metrics, const Clock& clock,
               bool counted, std::optional<TimePoint> deadline = std::nullopt)
      : client_(client),
        metrics_(metrics),
        clock_(clock),
        arrival_(clock.Now()),
        counted_(counted),
        deadline_(deadline) {}

  void OnStart(const StartInfo& info) override { client_.OnStart(info); }
  SinkVerdict OnToken(const TokenChunk& chunk) override { return client_.OnToken(chunk); }
  void OnChoiceEnd(const ChoiceEnd& end) override { client_.OnChoiceEnd(end); }
  void OnDone(const Completion& completion) override;

  // Ends a request that never reached the engine: as refused...
  void Refuse(RejectReason reason, Status status);
  // ... or as cancelled, by its client or by its deadline.
  void EndUnstarted(Status status);

  bool counted() const { return counted_; }
  // Opens the timeline of a request that goes on to the engine. Before any other thread
  // has the sink.
  void Record(const GenerateRequest& request);
  const FlightTicket& ticket() const { return ticket_; }

 private:
  RequestOutcome OutcomeOf(const Completion& completion) const;
  void Count(RequestOutcome outcome, const Completion& completion);

  TokenSink& client_;
  ServerMetrics& metrics_;
  const Clock& clock_;
  const TimePoint arrival_;
  const bool counted_;
  const std::optional<TimePoint> deadline_;
  FlightTicket ticket_;
  bool chat_ = false;
  int32_t n_ = 1;
};

}  // namespace renga
