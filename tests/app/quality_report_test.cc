#include "app/quality_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <fstream>
#include <functional>
#include <sstream>

#include "tests/models/temporary_folder.h"
#include "tests/models/tiny_model.h"

namespace renga {
namespace {

using testing::HasSubstr;
using testing::Not;

class QualityReportTest : public testing::Test {
 protected:
  QualityReportTest() {
    EXPECT_TRUE(test::WriteTinyModel({.type = test::TinyType::kQ8_0}, model_));
    std::ofstream text(text_);
    for (int i = 0; i < 60; ++i) text << "line " << i << " of the text\n";
  }

  QualityRequest Request() const {
    return {.model = model_, .text_file = text_, .device = {.threads = 1}};
  }

  const test::TemporaryFolder folder_;
  const std::string model_ = folder_ / "tiny.gguf";
  const std::string text_ = folder_ / "text.txt";
  std::ostringstream err_;
};

TEST_F(QualityReportTest, AModelAloneHasAPerplexity) {
  const QualityRequest request = Request();
  const auto quality = MeasureQuality(request, err_);
  ASSERT_TRUE(quality.ok()) << quality.status().ToString();
  std::ostringstream out;
  PrintQuality(request, *quality, out);
  EXPECT_THAT(out.str(), HasSubstr("Quality on text.txt: "));
  EXPECT_THAT(out.str(), HasSubstr("perplexity"));
  EXPECT_THAT(out.str(), Not(HasSubstr("KL")));
  EXPECT_EQ(err_.str(), "") << "nobody is looking at a bar";
}

// The same file: what is left is the difference between fast and high.
TEST_F(QualityReportTest, TheReferenceIsComputedWithSixteenBits) {
  QualityRequest request = Request();
  request.reference = model_;
  const auto fast = MeasureQuality(request, err_);
  ASSERT_TRUE(fast.ok()) << fast.status().ToString();
  EXPECT_GT(fast->totals.mean_kl(), 0.0);
  EXPECT_LT(fast->totals.mean_kl(), 0.02);
  request.device.precision = "high";
  const auto high = MeasureQuality(request, err_);
  ASSERT_TRUE(high.ok()) << high.status().ToString();
  EXPECT_NEAR(high->totals.mean_kl(), 0.0, 1e-12);
  std::ostringstream out;
  PrintQuality(request, *high, out);
  EXPECT_THAT(out.str(), HasSubstr("KL(reference || model)"));
  EXPECT_THAT(out.str(), HasSubstr("100.00 %"));
}

TEST_F(QualityReportTest, WhatIsWrongIsNamed) {
  const auto field = [this](const std::function<void(QualityRequest&)>& change) {
    QualityRequest request = Request();
    change(request);
    return MeasureQuality(request, err_).status().field();
  };
  EXPECT_EQ(field([](QualityRequest& r) { r.kv_dtype = "f8"; }), "kv.dtype");
  EXPECT_EQ(field([](QualityRequest& r) { r.text_file = "/nonexistent"; }), "text");
  EXPECT_EQ(field([](QualityRequest& r) { r.text_file = "/dev/null"; }), "text");
  EXPECT_EQ(field([](QualityRequest& r) { r.device.isa = "z80"; }), "device.isa");
}

TEST_F(QualityReportTest, AStopIsObeyed) {
  const std::atomic<bool> stop{true};
  QualityRequest request = Request();
  request.stop = &stop;
  EXPECT_EQ(MeasureQuality(request, err_).status().code(), StatusCode::kCancelled);
}

TEST(WorkerThreads, AreAtLeastOne) {
  EXPECT_EQ(WorkerThreads({.threads = 3}), 3);
  EXPECT_GE(WorkerThreads({.threads = 0}), 1);
}

}  // namespace
}  // namespace renga
