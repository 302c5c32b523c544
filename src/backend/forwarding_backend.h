// ForwardingBackend: a Backend that passes everything on, for those who want to see or
// change one call of another (tests, the step bench).

#pragma once

#include "renga/backend.h"

namespace renga {

class ForwardingBackend : public Backend {
 public:
  explicit ForwardingBackend(Backend& to) : to_(to) {}

  BackendInfo info() const override { return to_.info(); }
  Status Configure(const GraphShape& shape, const BackendLimits& limits) override {
    return to_.Configure(shape, limits);
  }
  StatusOr<MatrixId> LoadMatrix(std::span<const TensorView> stacked) override {
    return to_.LoadMatrix(stacked);
  }
  StatusOr<VectorId> LoadVector(std::span<const float> values) override {
    return to_.LoadVector(values);
  }
  Status CheckKv(const KvGeometry& geometry) const override {
    return to_.CheckKv(geometry);
  }
  Status CreateKvPool(const KvGeometry& geometry, int64_t pages) override {
    return to_.CreateKvPool(geometry, pages);
  }
  int64_t page_bytes() const override { return to_.page_bytes(); }
  int64_t open_page_bytes() const override { return to_.open_page_bytes(); }
  PageLayout page_layout() const override { return to_.page_layout(); }
  Status ReadPage(PageId page, std::span<std::byte> bytes) override {
    return to_.ReadPage(page, bytes);
  }
  Status WritePage(PageId page, std::span<const std::byte> bytes) override {
    return to_.WritePage(page, bytes);
  }
  Status CopyPageHead(PageId from, PageId to, int32_t tokens) override {
    return to_.CopyPageHead(from, to, tokens);
  }
  Status BeginStep(const StepBatch& batch, const AttendPlan& plan) override {
    return to_.BeginStep(batch, plan);
  }
  Status Embed(MatrixId table) override { return to_.Embed(table); }
  Status NormQkvRopeAppend(int32_t layer, const LayerWeights& weights) override {
    return to_.NormQkvRopeAppend(layer, weights);
  }
  Status Attend(int32_t layer) override { return to_.Attend(layer); }
  Status OutProjAdd(const LayerWeights& weights) override {
    return to_.OutProjAdd(weights);
  }
  Status Mlp(const LayerWeights& weights) override { return to_.Mlp(weights); }
  Status Head(VectorId norm, MatrixId table) override { return to_.Head(norm, table); }
  Status Sample(std::span<const SampleSpec> specs,
                std::span<SampleResult> results) override {
    return to_.Sample(specs, results);
  }
  StatusOr<std::span<const float>> Logits(int32_t row) override {
    return to_.Logits(row);
  }

 private:
  Backend& to_;
};

}  // namespace renga
