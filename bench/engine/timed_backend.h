// TimedBackend: how much of a step's time each fused step takes.
//
// Passes everything on to another backend and adds up the wall time of each kind of call.
// Thread rule: the backend's.

#pragma once

#include <array>
#include <cstddef>

#include "backend/forwarding_backend.h"
#include "base/system_clock.h"

namespace renga {

class TimedBackend : public ForwardingBackend {
 public:
  enum Part : size_t {
    kBegin,
    kEmbed,
    kQkv,
    kAttend,
    kOut,
    kMlp,
    kHead,
    kSample,
    kParts
  };
  static constexpr const char* kNames[kParts] = {
      "begin", "embed", "norm, qkv, rope, append", "attend", "out", "norm, mlp",
      "head",  "sample"};

  using ForwardingBackend::ForwardingBackend;

  Duration time(Part part) const { return times_[part]; }
  void Reset() { times_ = {}; }

  Status BeginStep(const StepBatch& batch, const AttendPlan& plan) override {
    return Timed(kBegin, [&] { return ForwardingBackend::BeginStep(batch, plan); });
  }
  Status Embed(MatrixId table) override {
    return Timed(kEmbed, [&] { return ForwardingBackend::Embed(table); });
  }
  Status NormQkvRopeAppend(int32_t layer, const LayerWeights& weights) override {
    return Timed(kQkv,
                 [&] { return ForwardingBackend::NormQkvRopeAppend(layer, weights); });
  }
  Status Attend(int32_t layer) override {
    return Timed(kAttend, [&] { return ForwardingBackend::Attend(layer); });
  }
  Status OutProjAdd(const LayerWeights& weights) override {
    return Timed(kOut, [&] { return ForwardingBackend::OutProjAdd(weights); });
  }
  Status Mlp(const LayerWeights& weights) override {
    return Timed(kMlp, [&] { return ForwardingBackend::Mlp(weights); });
  }
  Status Head(VectorId norm, MatrixId table) override {
    return Timed(kHead, [&] { return ForwardingBackend::Head(norm, table); });
  }
  Status Sample(std::span<const SampleSpec> specs,
                std::span<SampleResult> results) override {
    return Timed(kSample, [&] { return ForwardingBackend::Sample(specs, results); });
  }

 private:
  template <class Call>
  Status Timed(Part part, Call call) {
    const TimePoint start = clock_.Now();
    Status status = call();
    times_[part] += clock_.Now() - start;
    return status;
  }

  const SystemClock clock_{};
  std::array<Duration, kParts> times_{};
};

}  // namespace renga
