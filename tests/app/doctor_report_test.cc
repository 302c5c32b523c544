#include "app/doctor_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/json/parse.hpp>

namespace renga {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr int64_t kMiB = 1 << 20;

DoctorFacts GoodFacts() {
  DoctorFacts facts;
  facts.system = {.cpu = "Some CPU",
                  .flags = {"avx2", "avx512f"},
                  .cores = 4,
                  .allowed_cores = 4,
                  .quota_cores = 0.0,
                  .memory_bytes = 8192 * kMiB,
                  .available_bytes = 4096 * kMiB,
                  .limit_bytes = 0,
                  .limit_used_bytes = 0,
                  .huge_pages = "madvise"};
  facts.backend = "cpu/avx512";
  facts.threads = 4;
  facts.read_bytes_per_second = 40e9;
  facts.macs_per_second = 300e9;
  facts.model = ModelFacts{.name = "tiny",
                           .architecture = "llama",
                           .context = 2048,
                           .weight_bytes = 100 * kMiB,
                           .read_bytes = 100'000'000,
                           .prompt_macs = 100'000'000,
                           .page_bytes = kMiB,
                           .activation_bytes = 50 * kMiB};
  return facts;
}

Verdict VerdictOf(const std::vector<Finding>& findings, const std::string& name) {
  for (const Finding& finding : findings) {
    if (finding.name == name) return finding.verdict;
  }
  ADD_FAILURE() << "nothing was found about " << name;
  return Verdict::kProblem;
}

TEST(DoctorReportTest, PredictsByMemoryAndByProducts) {
  const Prediction prediction = Predict(GoodFacts());
  EXPECT_DOUBLE_EQ(prediction.decode_tokens_per_second, 400.0);
  EXPECT_DOUBLE_EQ(prediction.prefill_tokens_per_second, 3000.0);
  EXPECT_EQ(Predict({}).decode_tokens_per_second, 0.0);
}

TEST(DoctorReportTest, AMachineThatFitsHasNoProblem) {
  const DoctorReport report{.facts = GoodFacts(), .findings = Judge(GoodFacts(), {})};
  for (const Finding& finding : report.findings) {
    EXPECT_EQ(finding.verdict, Verdict::kGood) << finding.name << ": " << finding.text;
  }
  EXPECT_TRUE(report.Good());
}

TEST(DoctorReportTest, AModelThatDoesNotFitIsAProblem) {
  DoctorFacts facts = GoodFacts();
  facts.model->weight_bytes = 5000 * kMiB;
  EXPECT_EQ(VerdictOf(Judge(facts, {}), "memory"), Verdict::kProblem);
  EXPECT_FALSE((DoctorReport{.facts = facts, .findings = Judge(facts, {})}).Good());
}

TEST(DoctorReportTest, APoolThatDoesNotFitBesideTheModelIsAProblem) {
  Config config;
  config.kv.pool_bytes = 4096 * kMiB;
  EXPECT_EQ(VerdictOf(Judge(GoodFacts(), config), "kv.pool_bytes"), Verdict::kProblem);
}

TEST(DoctorReportTest, AControlGroupCountsInsteadOfTheMachine) {
  DoctorFacts facts = GoodFacts();
  facts.system.limit_bytes = 1024 * kMiB;
  facts.system.limit_used_bytes = 900 * kMiB;
  EXPECT_EQ(VerdictOf(Judge(facts, {}), "memory"), Verdict::kProblem);
}

TEST(DoctorReportTest, APoolBelowOneContextIsAWarning) {
  Config config;
  config.kv.pool_bytes = 31 * kMiB;  // 1984 tokens.
  EXPECT_EQ(VerdictOf(Judge(GoodFacts(), config), "kv.pool_bytes"), Verdict::kWarning);
  config.kv.pool_bytes = 32 * kMiB;
  EXPECT_EQ(VerdictOf(Judge(GoodFacts(), config), "kv.pool_bytes"), Verdict::kGood);
  config.kv.pool_bytes = 1 << 16;
  EXPECT_EQ(VerdictOf(Judge(GoodFacts(), config), "kv.pool_bytes"), Verdict::kProblem);
}

TEST(DoctorReportTest, MoreThreadsThanCoresAreAWarning) {
  DoctorFacts facts = GoodFacts();
  facts.system.quota_cores = 2.5;
  const std::vector<Finding> findings = Judge(facts, {});
  EXPECT_EQ(VerdictOf(findings, "device.threads"), Verdict::kWarning);
}

TEST(DoctorReportTest, ABusyMachineIsAWarning) {
  DoctorFacts facts = GoodFacts();
  facts.system.load = 2.1;
  EXPECT_EQ(VerdictOf(Judge(facts, {}), "load"), Verdict::kWarning);
}

TEST(DoctorReportTest, SlowKernelsAndMissingHugePagesAreWarnings) {
  DoctorFacts facts = GoodFacts();
  facts.backend = "cpu/portable";
  facts.system.huge_pages = "never";
  EXPECT_EQ(VerdictOf(Judge(facts, {}), "device.isa"), Verdict::kWarning);
  EXPECT_EQ(VerdictOf(Judge(facts, {}), "huge pages"), Verdict::kWarning);
  facts.system.flags.clear();
  EXPECT_EQ(VerdictOf(Judge(facts, {}), "cpu"), Verdict::kWarning);
}

TEST(DoctorReportTest, AGpuIsJudgedByItsOwnMemory) {
  DoctorFacts facts = GoodFacts();
  facts.gpu = true;
  facts.backend = "cuda:0/NVIDIA A10G";
  facts.gpu_memory_bytes = 24'000 * kMiB;
  facts.read_bytes_per_second = 0.0;
  facts.system.huge_pages = "never";
  facts.model->weight_bytes = 16'000 * kMiB;  // More than the machine has.
  const std::vector<Finding> findings = Judge(facts, {});
  EXPECT_EQ(VerdictOf(findings, "gpu"), Verdict::kGood);
  EXPECT_EQ(VerdictOf(findings, "memory"), Verdict::kGood);
  const DoctorReport report{.facts = facts, .findings = findings};
  EXPECT_TRUE(report.Good());
  const std::string text = ReportText(report);
  EXPECT_THAT(text, HasSubstr("GPU               cuda:0/NVIDIA A10G"));
  EXPECT_THAT(text, HasSubstr("the GPU has "));
  EXPECT_THAT(text, Not(HasSubstr("huge pages")));
  EXPECT_THAT(text, Not(HasSubstr("by the memory's speed")));
  facts.gpu_memory_bytes = 15'000 * kMiB;
  EXPECT_EQ(VerdictOf(Judge(facts, {}), "memory"), Verdict::kProblem);
}

TEST(DoctorReportTest, TheTextNamesWhatMatters) {
  const DoctorReport report{
      .facts = GoodFacts(),
      .findings = {{Verdict::kProblem, "grpc.address", "127.0.0.1:50051: in use"}}};
  const std::string text = ReportText(report);
  for (const char* part :
       {"Some CPU", "avx2 avx512f", "cpu/avx512, 4 threads", "40.0 GB/s", "tiny (llama)",
        "about 400 tokens/s", "about 3000 tokens/s",
        "PROBLEM grpc.address: 127.0.0.1:50051: in use"}) {
    EXPECT_THAT(text, HasSubstr(part));
  }
}

TEST(DoctorReportTest, TheJsonHasTheSame) {
  DoctorReport report{.facts = GoodFacts(),
                      .findings = {{Verdict::kWarning, "x", "with \"quotes\"\n"}}};
  const boost::json::value json = boost::json::parse(ReportJson(report));
  EXPECT_EQ(json.at("ok"), true);
  EXPECT_EQ(json.at("machine").at("usable_cores"), 4);
  EXPECT_EQ(json.at("model").at("predicted_decode_tokens_per_second").to_number<double>(),
            400.0);
  EXPECT_EQ(json.at("findings").at(0).at("verdict"), "warning");
  report.facts.model.reset();
  EXPECT_TRUE(boost::json::parse(ReportJson(report)).at("model").is_null());
}

}  // namespace
}  // namespace renga
