#include "app/warm_up.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "app/server_app.h"
#include "base/log.h"
#include "tests/fakes/http_connection.h"
#include "tests/models/replay_backend.h"
#include "tests/models/tiny_model.h"
#include "tests/models/tiny_vocab.h"

namespace renga {
namespace {

// The sum of all samples of a metric.
double SumOf(const std::string& text, const std::string& metric) {
  std::istringstream lines(text);
  double sum = 0.0;
  int found = 0;
  for (std::string line; std::getline(lines, line);) {
    if (line.substr(0, line.find_first_of("{ ")) != metric) continue;
    sum += std::stod(line.substr(line.rfind(' ') + 1));
    ++found;
  }
  EXPECT_GT(found, 0) << metric;
  return sum;
}

// What the device saw until the server was ready.
struct Seen {
  std::vector<int64_t> lengths;  // Of prompt and all but the last token; ascending.
  size_t most_together = 0;      // Sequences in one step.
  std::string metrics;
};

Seen WarmUpOn(int32_t context, int64_t pool_bytes,
              const SchedulerSettings& scheduler = {}) {
  const std::string path = testing::TempDir() + "renga_warm_up_test.gguf";
  EXPECT_TRUE(ConfigureLog("error", "text").ok());
  test::TinyModelOptions options;
  options.context = context;
  EXPECT_TRUE(test::WriteTinyModel(options, path));
  Config config;
  config.model.path = path;
  config.grpc.address = "127.0.0.1:0";
  config.gateway.address = "127.0.0.1:0";
  config.admin.address = "127.0.0.1:0";
  config.admin.grpc_address = "127.0.0.1:0";
  config.kv.pool_bytes = pool_bytes;
  config.scheduler = scheduler;
  test::ReplayBackend* replay = nullptr;
  ServerApp app(config, [&](const DeviceSettings&) -> StatusOr<std::unique_ptr<Backend>> {
    auto backend = std::make_unique<test::ReplayBackend>(
        test::ReplayBackend::Always({test::kTinyTurnEnd}),
        test::ReplayOptions{.context = context});
    replay = backend.get();
    return std::unique_ptr<Backend>(std::move(backend));
  });
  const Status started = app.Start();
  EXPECT_TRUE(started.ok()) << started.ToString();
  Seen seen;
  std::map<PageId, int64_t> lengths;  // Of the sequences, by their first page.
  const auto end_of = [&](PageId first) {
    const auto ended = lengths.extract(first);
    if (!ended.empty()) seen.lengths.push_back(ended.mapped());
  };
  for (const test::ReplayStep& step : replay->records()) {
    for (const auto& sequence : step.sequences) {
      if (sequence.first_position == 0) end_of(sequence.pages.at(0));
      lengths[sequence.pages.at(0)] = sequence.first_position + sequence.rows;
    }
  }
  while (!lengths.empty()) end_of(lengths.begin()->first);
  std::sort(seen.lengths.begin(), seen.lengths.end());
  seen.metrics = HttpGet(app.admin_address(), "/metrics");
  std::remove(path.c_str());
  return seen;
}

// Four tokens each, also where the model would like to end at once.
TEST(WarmUpTest, TenRequestsOf1To256TokensRunThroughTheWholePath) {
  const Seen seen = WarmUpOn(1024, 1 << 24);
  EXPECT_EQ(seen.lengths,
            (std::vector<int64_t>{1 + 3, 2 + 3, 4 + 3, 8 + 3, 16 + 3, 32 + 3, 64 + 3,
                                  96 + 3, 128 + 3, 256 + 3}));
}

TEST(WarmUpTest, TheyFitASmallContextAndASmallPool) {
  const Seen context = WarmUpOn(20, 1 << 24);
  EXPECT_EQ(context.lengths.size(), 10u);
  EXPECT_EQ(context.lengths.back(), 16 + 3);
  // A page of the tiny model takes 16 KiB: the pool holds 128 positions.
  EXPECT_EQ(WarmUpOn(1024, 2 << 14).lengths.back(), 124 + 3);
  EXPECT_EQ(WarmUpOn(2, 1 << 24).lengths, std::vector<int64_t>(10, 1));
}

TEST(WarmUpTest, AQueueTooSmallForCompanyRunsThemOneByOne) {
  for (const auto& scheduler : {SchedulerSettings{.max_queue_requests = 1},
                                SchedulerSettings{.max_queue_tokens = 1},
                                SchedulerSettings{.policy = "serial"}}) {
    EXPECT_EQ(WarmUpOn(1024, 1 << 24, scheduler).lengths.size(), 10u);
  }
}

TEST(WarmUpTest, ItLeavesNoTraceInTheMetricsOfRequestsAndNoPages) {
  const std::string text = WarmUpOn(1024, 1 << 24).metrics;
  for (const char* series :
       {"renga_requests_total", "renga_prompt_tokens_total",
        "renga_generated_tokens_total", "renga_time_to_first_token_seconds_count",
        "renga_request_queue_seconds_count", "renga_request_duration_seconds_count",
        "renga_inter_token_latency_seconds_count", "renga_tokenize_seconds_count",
        "renga_time_per_output_token_seconds_count", "renga_kv_pages_used",
        "renga_kv_pages_cached", "renga_wasted_tokens_total", "renga_requests_running",
        "renga_queue_tokens"}) {
    EXPECT_EQ(SumOf(text, series), 0.0) << series;
  }
  EXPECT_GT(SumOf(text, "renga_warm_up_seconds"), 0.0);
  EXPECT_GT(SumOf(text, "renga_step_prediction_ratio_count"), 0.0);
}

}  // namespace
}  // namespace renga
