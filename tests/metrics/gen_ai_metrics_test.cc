#include "metrics/gen_ai_metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace renga {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;
using testing::Not;

std::string Labels(const std::string& operation, const std::string& error = "\n") {
  std::string labels;
  if (error != "\n") labels += "error_type=\"" + error + "\",";
  return labels + "gen_ai_operation_name=\"" + operation +
         "\",gen_ai_provider_name=\"renga\",gen_ai_request_model=\"tiny\",gen_ai_"
         "response_"
         "model=\"tiny\"";
}

TEST(GenAiMetricsTest, AreOffUnlessAskedFor) {
  ServerMetrics metrics("tiny", "cpu");
  metrics.CountRequest({.first_token = milliseconds(5), .chat = true});
  EXPECT_THAT(metrics.Serialize(), Not(HasSubstr("gen_ai_")));
}

TEST(GenAiMetricsTest, CarryOpenTelemetrysNamesLabelsAndBuckets) {
  ServerMetrics metrics("tiny", "cpu", {.otel_aliases = true});
  metrics.CountRequest({.outcome = RequestOutcome::kOk,
                        .elapsed = milliseconds(300),
                        .first_token = milliseconds(30),
                        .per_token = milliseconds(9),
                        .chat = true});
  const std::string text = metrics.Serialize();
  for (const std::string& line :
       {"gen_ai_server_request_duration_seconds_count{" + Labels("chat", "") + "} 1\n",
        "gen_ai_server_request_duration_seconds_bucket{" + Labels("chat", "") +
            ",le=\"0.16\"} 0\n",
        "gen_ai_server_request_duration_seconds_bucket{" + Labels("chat", "") +
            ",le=\"0.32\"} 1\n",
        "gen_ai_server_time_to_first_token_seconds_bucket{" + Labels("chat") +
            ",le=\"0.04\"} 1\n",
        "gen_ai_server_time_per_output_token_seconds_bucket{" + Labels("chat") +
            ",le=\"0.01\"} 1\n",
        "gen_ai_server_time_to_first_token_seconds_count{" + Labels("text_completion") +
            "} 0\n"}) {
    EXPECT_THAT(text, HasSubstr(line));
  }
}

TEST(GenAiMetricsTest, AFailureHasItsTypeAndNoTokens) {
  ServerMetrics metrics("tiny", "cpu", {.otel_aliases = true});
  metrics.CountRequest(RequestOutcome::kRejected, milliseconds(1));
  metrics.CountRequest(RequestOutcome::kDeadline, milliseconds(1));
  const std::string text = metrics.Serialize();
  for (const char* error : {"rejected", "deadline_exceeded"}) {
    EXPECT_THAT(text, HasSubstr("gen_ai_server_request_duration_seconds_count{" +
                                Labels("text_completion", error) + "} 1\n"));
  }
  EXPECT_THAT(text, HasSubstr("gen_ai_server_time_to_first_token_seconds_count{" +
                              Labels("text_completion") + "} 0\n"));
}

}  // namespace
}  // namespace renga
