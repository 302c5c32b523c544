#include "app/warm_up.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "app/server_app.h"
#include "base/log.h"
#include "tests/models/replay_backend.h"
#include "tests/models/tiny_model.h"
#include "tests/models/tiny_vocab.h"

namespace renga {
namespace {

// The prompt lengths that the device saw until the server was ready, in order.
std::vector<int32_t> WarmUpLengths(int32_t context, int64_t pool_bytes) {
  const std::string path = testing::TempDir() + "renga_warm_up_test.gguf";
  EXPECT_TRUE(ConfigureLog("error", "text").ok());
  test::TinyModelOptions options;
  options.context = context;
  EXPECT_TRUE(test::WriteTinyModel(options, path));
  Config config;
  config.model.path = path;
  config.grpc.address = "127.0.0.1:0";
  config.admin.address = "127.0.0.1:0";
  config.kv.pool_bytes = pool_bytes;
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
  std::vector<int32_t> lengths;
  int answers = 0;
  for (const test::ReplayStep& step : replay->records()) {
    EXPECT_EQ(step.sequences.size(), 1u);
    if (step.sequences.at(0).first_position == 0) {
      lengths.push_back(step.sequences[0].rows);
    } else {
      ++answers;
    }
  }
  // Four tokens each, also where the model would like to end at once.
  EXPECT_EQ(answers, 3 * static_cast<int>(lengths.size()));
  std::remove(path.c_str());
  return lengths;
}

TEST(WarmUpTest, TenRequestsOf1To256TokensRunThroughTheWholePath) {
  EXPECT_EQ(WarmUpLengths(1024, 1 << 24),
            (std::vector<int32_t>{1, 2, 4, 8, 16, 32, 64, 96, 128, 256}));
}

TEST(WarmUpTest, TheyFitASmallContextAndASmallPool) {
  const std::vector<int32_t> context = WarmUpLengths(20, 1 << 24);
  EXPECT_EQ(*std::max_element(context.begin(), context.end()), 16);
  // A page of the tiny model takes 16 KiB: the pool holds 128 positions.
  const std::vector<int32_t> pool = WarmUpLengths(1024, 2 << 14);
  EXPECT_EQ(*std::max_element(pool.begin(), pool.end()), 124);
}

}  // namespace
}  // namespace renga
