#include "metrics/server_metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "tests/fakes/manual_clock.h"

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
  metrics.CountRequest(RequestOutcome::kRejected, milliseconds(1));
  metrics.CountRequest(RequestOutcome::kRejected, milliseconds(1));
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
  metrics.ObserveFirstToken(KvSource::kComputed, std::chrono::microseconds(90));
  metrics.ObserveFirstToken(KvSource::kComputed, milliseconds(40));
  metrics.ObserveFirstToken(KvSource::kComputed, std::chrono::seconds(119));
  metrics.ObserveStep(StepPhase::kMixed, milliseconds(3));
  const std::string text = metrics.Serialize();
  const std::string bucket =
      "renga_time_to_first_token_seconds_bucket{model=\"tiny\",kind=\"cold\",le=";
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

TEST(ServerMetricsTest, FirstTokensAndPromptTokensAreToldApartByTheirSource) {
  ServerMetrics metrics("tiny", "cpu");
  metrics.ObserveFirstToken(KvSource::kPrefixCache, milliseconds(1));
  metrics.CountPromptTokens(KvSource::kComputed, 3);
  metrics.CountPromptTokens(KvSource::kPrefixCache, 64);
  metrics.SetWaiting(Priority::kLow, 5);
  const std::string text = metrics.Serialize();
  const std::string first =
      "renga_time_to_first_token_seconds_count{model=\"tiny\",kind=";
  EXPECT_EQ(Sample(text, first + "\"prefix\"}"), 1);
  EXPECT_EQ(Sample(text, first + "\"cold\"}"), 0);
  EXPECT_EQ(Sample(text, R"(renga_prompt_tokens_total{model="tiny",source="computed"})"),
            3);
  EXPECT_EQ(Sample(text, R"(renga_prompt_tokens_total{model="tiny",source="prefix"})"),
            64);
  EXPECT_EQ(Sample(text, R"(renga_requests_waiting{model="tiny",priority="low"})"), 5);
  EXPECT_EQ(Sample(text, R"(renga_requests_waiting{model="tiny",priority="high"})"), 0);
}

TEST(ServerMetricsTest, DurationsAreKeptByOutcomeAndRequestsAddUp) {
  ServerMetrics metrics("tiny", "cpu");
  metrics.CountRequest(RequestOutcome::kOk, milliseconds(200));
  metrics.CountRequest(RequestOutcome::kOk, milliseconds(200));
  metrics.CountRequest(RequestOutcome::kRejected, milliseconds(1));
  const std::string text = metrics.Serialize();
  const std::string count =
      "renga_request_duration_seconds_count{model=\"tiny\",outcome=";
  EXPECT_EQ(Sample(text, count + "\"ok\"}"), 2);
  EXPECT_EQ(Sample(text, count + "\"rejected\"}"), 1);
  EXPECT_EQ(Sample(text, count + "\"cancelled\"}"), 0);
  EXPECT_EQ(metrics.requests(), 3);
}

// By hand-moved time: what an operator reads without PromQL.
TEST(ServerMetricsTest, LiveLatenciesCoverTheLastMinute) {
  ManualClock clock;
  ServerMetrics metrics("tiny", "cpu", {.clock = &clock});
  const auto live = [&](const std::string& metric, const std::string& q) {
    return Sample(metrics.Serialize(),
                  "renga_latency_seconds_live{model=\"tiny\",metric=\"" + metric +
                      "\",q=\"" + q + "\"}");
  };
  EXPECT_EQ(live("inter_token", "0.99"), 0.0);
  for (int i = 1; i <= 100; ++i) {
    metrics.inter_token_latency.Observe(milliseconds(i));
    metrics.ObserveFirstToken(i % 2 == 0 ? KvSource::kComputed : KvSource::kPrefixCache,
                              milliseconds(10 * i));
    metrics.CountRequest(RequestOutcome::kOk, milliseconds(20 * i));
    metrics.CountRequest(RequestOutcome::kRejected, milliseconds(1));
  }
  EXPECT_NEAR(live("inter_token", "0.5"), 0.050, 0.0015);
  EXPECT_NEAR(live("inter_token", "0.95"), 0.095, 0.003);
  EXPECT_NEAR(live("inter_token", "0.99"), 0.099, 0.003);
  EXPECT_NEAR(live("time_to_first_token", "0.99"), 0.99, 0.03);
  EXPECT_NEAR(live("request_duration", "0.5"), 1.0, 0.03);
  clock.Advance(std::chrono::seconds(61));
  for (const char* metric : {"inter_token", "time_to_first_token", "request_duration"}) {
    EXPECT_EQ(live(metric, "0.99"), 0.0) << metric;
  }
}

TEST(ServerMetricsTest, PagesAreShownInBytesToo) {
  ServerMetrics metrics("tiny", "cpu");
  metrics.SetKvPageBytes(1000);
  metrics.kv_pages_used.Set(3);
  metrics.kv_pages_cached.Set(4);
  EXPECT_EQ(Sample(metrics.Serialize(), R"(renga_kv_bytes{model="tiny",tier="ram"})"),
            7000);
}

TEST(ServerMetricsTest, MemoryIsShownByPurpose) {
  ServerMetrics metrics("tiny", "cpu");
  metrics.SetMemory(static_cast<size_t>(MemoryPurpose::kRequests),
                    {.bytes = 10, .buffers = 2}, true);
  metrics.SetMemory(kProcessRow, {.bytes = 99, .buffers = 0}, false);
  const std::string text = metrics.Serialize();
  EXPECT_EQ(Sample(text, R"(renga_memory_bytes{model="tiny",purpose="requests"})"), 10);
  EXPECT_EQ(Sample(text, R"(renga_memory_buffers{model="tiny",purpose="requests"})"), 2);
  EXPECT_EQ(
      Sample(text, R"(renga_memory_leak_suspected{model="tiny",purpose="requests"})"), 1);
  EXPECT_EQ(Sample(text, R"(renga_memory_bytes{model="tiny",purpose="process"})"), 99);
  EXPECT_EQ(Sample(text, R"(renga_memory_leak_suspected{model="tiny",purpose="heap"})"),
            0);
}

TEST(ServerMetricsTest, TheProcessIsShownUnderTheNamesThatAllClientsUse) {
  const std::string text = ServerMetrics("tiny", "cpu").Serialize();
  EXPECT_GT(Sample(text, "process_resident_memory_bytes"), 1e6);
  EXPECT_GT(Sample(text, "process_virtual_memory_bytes"), 1e6);
  EXPECT_GE(Sample(text, "process_threads"), 1);
  EXPECT_GE(Sample(text, "process_open_fds"), 3);
  EXPECT_GE(Sample(text, "process_max_fds"), Sample(text, "process_open_fds"));
  EXPECT_GE(Sample(text, "process_cpu_seconds_total"), 0);
  EXPECT_GT(Sample(text, "process_start_time_seconds"), 1e9);
}

// Scrapes and updates from many threads, for the thread sanitizer.
TEST(ServerMetricsTest, EverybodyMayUpdateWhileSomebodyScrapes) {
  ServerMetrics metrics("tiny", "cpu");
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 500; ++i) {
        metrics.inter_token_latency.Observe(milliseconds(i));
        metrics.CountRequest(RequestOutcome::kOk, milliseconds(i));
      }
    });
  }
  for (int i = 0; i < 5; ++i) EXPECT_FALSE(metrics.Serialize().empty());
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(metrics.requests(), 1500);
}

TEST(ServerMetricsTest, AModelNameThatNeedsEscapingBreaksNoLine) {
  const std::string text = ServerMetrics("a\"b\\c\nd", "cpu").Serialize();
  EXPECT_THAT(text, HasSubstr(R"(model="a\"b\\c\nd")"));
}

}  // namespace
}  // namespace renga
