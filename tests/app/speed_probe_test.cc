#include "app/speed_probe.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "backend/cpu_backend.h"
#include "backend/forwarding_backend.h"

namespace renga {
namespace {

constexpr Duration kShort = std::chrono::milliseconds(1);

TEST(SpeedProbeTest, EveryNumberOfThreadsReadsSomething) {
  for (const int32_t threads : {1, 2, 3}) {
    const double speed = MeasureReadBandwidth(threads, 8 << 20, kShort);
    EXPECT_GT(speed, 0.0);
    EXPECT_TRUE(std::isfinite(speed));
  }
}

TEST(SpeedProbeTest, WithoutMemoryThereIsNoSpeed) {
  EXPECT_EQ(MeasureReadBandwidth(1, 0, kShort), 0.0);
  EXPECT_EQ(MeasureReadBandwidth(4, 16, kShort), 0.0);
}

TEST(SpeedProbeTest, TheMadeUpLayerRunsOnTheDevice) {
  const auto backend = MakeCpuBackend({.threads = 2, .precision = "fast"});
  ASSERT_TRUE(backend.ok());
  const MadeUpLayer layer;
  const auto speed = MeasureProducts(**backend, layer.views(), kShort);
  ASSERT_TRUE(speed.ok()) << speed.status().ToString();
  EXPECT_GT(*speed, 0.0);
}

// As CUDA does: a step's work is done at its last call, and only if nothing is missing.
class LateBackend : public ForwardingBackend {
 public:
  using ForwardingBackend::ForwardingBackend;

  Status BeginStep(const StepBatch& batch, const AttendPlan& plan) override {
    calls_ = "begin";
    return ForwardingBackend::BeginStep(batch, plan);
  }
  Status Embed(MatrixId table) override {
    calls_ += " embed";
    return ForwardingBackend::Embed(table);
  }
  Status NormQkvRopeAppend(int32_t layer, const LayerWeights& weights) override {
    calls_ += " qkv";
    return ForwardingBackend::NormQkvRopeAppend(layer, weights);
  }
  Status Attend(int32_t layer) override {
    calls_ += " attend";
    return ForwardingBackend::Attend(layer);
  }
  Status Mlp(const LayerWeights& weights) override {
    EXPECT_EQ(calls_, "begin embed qkv attend");
    calls_.clear();
    return ForwardingBackend::Mlp(weights);
  }

 private:
  std::string calls_;
};

TEST(SpeedProbeTest, WholeStepsAreTimed) {
  const auto backend = MakeCpuBackend({.threads = 1});
  ASSERT_TRUE(backend.ok());
  LateBackend late(**backend);
  const MadeUpLayer layer;
  EXPECT_TRUE(MeasureProducts(late, layer.views(), kShort).ok());
}

TEST(SpeedProbeTest, ADeviceThatIsInUseIsAnErrorNotACrash) {
  const auto backend = MakeCpuBackend({.threads = 1});
  ASSERT_TRUE(backend.ok());
  const MadeUpLayer layer;
  ASSERT_TRUE(MeasureProducts(**backend, layer.views(), kShort).ok());
  EXPECT_FALSE(MeasureProducts(**backend, layer.views(), kShort).ok());
}

}  // namespace
}  // namespace renga
