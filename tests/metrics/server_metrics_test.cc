#include "metrics/server_metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ctime>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>

namespace renga {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;

// The value of the one sample that starts with `series`, up to the blank.
double Sample(const std::string& text, const std::string& series) {
  std::istringstream lines(text);
  double value = -1.0;
  int found = 0;
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with(series + ' ')) continue;
    value = std::stod(line.substr(series.size() + 1));
    ++found;
  }
  EXPECT_EQ(found, 1) << series;
  return value;
}

TEST(ServerMetricsTest, EveryLineIsAHelpATypeOrASample) {
  const ServerMetrics metrics("tiny", "cpu/avx2");
  const std::regex valid(
      R"(# HELP [a-z_]+ \S.*|# TYPE [a-z_]+ (counter|gauge|histogram))"
      R"(|[a-z_]+(\{([a-z_]+="[^"]*",?)*\})? (-?[0-9.e+-]+|\+Inf|NaN))");
  std::istringstream lines(metrics.Serialize());
  int count = 0;
  for (std::string line; std::getline(lines, line); ++count) {
    EXPECT_TRUE(std::regex_match(line, valid)) << line;
  }
  EXPECT_GT(count, 300);
}

TEST(ServerMetricsTest, EveryNameHasThePrefixAndUnitsAreBaseUnits) {
  const ServerMetrics metrics("tiny", "cpu/avx2");
  std::istringstream lines(metrics.Serialize());
  std::map<std::string, std::string> types;
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string hash, kind, name, type;
    words >> hash >> kind >> name >> type;
    if (kind != "TYPE") continue;
    EXPECT_TRUE(types.emplace(name, type).second) << name << " twice";
    EXPECT_TRUE(name.starts_with("renga_") || name.starts_with("process_")) << name;
    EXPECT_EQ(name.find("_ms"), std::string::npos) << name;
    EXPECT_EQ(name.ends_with("_total"), type == "counter") << name;
  }
  EXPECT_EQ(types["renga_time_to_first_token_seconds"], "histogram");
  EXPECT_EQ(types["renga_kv_pages_used"], "gauge");
  EXPECT_EQ(types["process_resident_memory_bytes"], "gauge");
}

TEST(ServerMetricsTest, EverySeriesIsThereAtZeroBeforeAnythingHappened) {
  const ServerMetrics metrics("tiny", "cpu");
  const std::string text = metrics.Serialize();
  for (const char* outcome : {"ok", "error", "cancelled", "deadline", "rejected"}) {
    EXPECT_EQ(Sample(text, std::string("renga_requests_total{model=\"tiny\",outcome=\"") +
                               outcome + "\"}"),
              0.0);
  }
  EXPECT_EQ(Sample(text, "renga_request_queue_seconds_count{model=\"tiny\"}"), 0.0);
}

TEST(ServerMetricsTest, CountersGrowInTheSeriesOfTheirLabel) {
  ServerMetrics metrics("tiny", "cpu/avx2");
  metrics.CountRequest(RequestOutcome::kRejected);
  metrics.CountRequest(RequestOutcome::kRejected);
  metrics.CountRejection(RejectReason::kTooLong);
  metrics.CountCancellation(CancelStage::kPrefill);
  metrics.generated_tokens.Increment(7);
  const std::string text = metrics.Serialize();
  EXPECT_EQ(Sample(text, R"(renga_requests_total{model="tiny",outcome="rejected"})"), 2);
  EXPECT_EQ(Sample(text, R"(renga_requests_total{model="tiny",outcome="ok"})"), 0);
  EXPECT_EQ(Sample(text, R"(renga_rejections_total{model="tiny",reason="too_long"})"), 1);
  EXPECT_EQ(Sample(text, R"(renga_cancellations_total{model="tiny",stage="prefill"})"),
            1);
  EXPECT_EQ(Sample(text, R"(renga_generated_tokens_total{model="tiny"})"), 7);
}

TEST(ServerMetricsTest, HistogramsResolveFrom100MicrosecondsTo120Seconds) {
  ServerMetrics metrics("tiny", "cpu/avx2");
  metrics.time_to_first_token.Observe(std::chrono::microseconds(90));
  metrics.time_to_first_token.Observe(milliseconds(40));
  metrics.time_to_first_token.Observe(std::chrono::seconds(119));
  metrics.ObserveStep(StepPhase::kMixed, milliseconds(3));
  const std::string text = metrics.Serialize();
  const std::string bucket =
      "renga_time_to_first_token_seconds_bucket{model=\"tiny\",le=";
  EXPECT_EQ(Sample(text, bucket + "\"0.0001\"}"), 1);
  EXPECT_EQ(Sample(text, bucket + "\"0.03\"}"), 1);
  EXPECT_EQ(Sample(text, bucket + "\"0.05\"}"), 2);
  EXPECT_EQ(Sample(text, bucket + "\"120\"}"), 3);
  EXPECT_EQ(
      Sample(text, R"(renga_engine_step_seconds_count{model="tiny",phase="mixed"})"), 1);
}

TEST(ServerMetricsTest, BuildInfoNamesBackendAndInstructionSet) {
  const std::string text = ServerMetrics("tiny", "cpu/avx512").Serialize();
  EXPECT_THAT(text, HasSubstr("renga_build_info{"));
  EXPECT_THAT(text, HasSubstr(R"(backend="cpu")"));
  EXPECT_THAT(text, HasSubstr(R"(isa="avx512")"));
}

TEST(ServerMetricsTest, TheProcessSaysItsMemoryAndWhenItBegan) {
  const std::string text = ServerMetrics("tiny", "cpu").Serialize();
  EXPECT_GT(Sample(text, "process_resident_memory_bytes"), 1e6);
  const double now = static_cast<double>(std::time(nullptr));
  EXPECT_LE(Sample(text, "process_start_time_seconds"), now + 1);
  EXPECT_GT(Sample(text, "process_start_time_seconds"), now - 24 * 3600);
}

TEST(ServerMetricsTest, AModelNameThatNeedsEscapingBreaksNoLine) {
  const std::string text = ServerMetrics("a\"b\\c\nd", "cpu").Serialize();
  EXPECT_THAT(text, HasSubstr(R"(model="a\"b\\c\nd")"));
}

}  // namespace
}  // namespace renga
