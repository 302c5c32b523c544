// What the backend refuses when it is made and configured.

#include <gtest/gtest.h>

#include <functional>

#include "tests/backend/tiny_model.h"

namespace renga {
namespace {

TEST(MakeCpuBackend, RefusesUnknownSettingsWithTheFieldsName) {
  EXPECT_EQ(MakeCpuBackend({.isa = "sse9"}).status().field(), "device.isa");
  EXPECT_EQ(MakeCpuBackend({.threads = -1}).status().field(), "device.threads");
  EXPECT_EQ(MakeCpuBackend({.threads = 100000}).status().field(), "device.threads");
  EXPECT_EQ(MakeCpuBackend({.precision = "8"}).status().field(), "device.precision");
  EXPECT_TRUE(MakeCpuBackend({}).ok());
}

Status Configure(const std::function<void(GraphShape&, BackendLimits&)>& change) {
  GraphShape shape = TinyShape();
  BackendLimits limits{
      .max_rows = 8, .max_logit_rows = 8, .max_sequences = 8, .max_pages = 4};
  change(shape, limits);
  return std::move(MakeCpuBackend({.threads = 1})).value()->Configure(shape, limits);
}

TEST(Configure, RefusesImpossibleShapes) {
  const auto field = [](const auto& change) { return Configure(change).field(); };
  EXPECT_TRUE(Configure([](GraphShape&, BackendLimits&) {}).ok());
  EXPECT_EQ(field([](GraphShape& s, BackendLimits&) { s.dim = 0; }), "dim");
  EXPECT_EQ(field([](GraphShape& s, BackendLimits&) { s.layers = -1; }), "layers");
  EXPECT_EQ(field([](GraphShape& s, BackendLimits&) { s.kv_heads = 3; }), "kv_heads");
  EXPECT_EQ(field([](GraphShape& s, BackendLimits&) { s.head_dim = 258; }), "head_dim");
  EXPECT_EQ(field([](GraphShape& s, BackendLimits&) { s.head_dim = 15; }), "head_dim");
  EXPECT_EQ(field([](GraphShape& s, BackendLimits&) { s.rope_dims = 18; }), "rope_dims");
  EXPECT_EQ(
      field([](GraphShape& s, BackendLimits&) { s.rope_inverse_frequencies.pop_back(); }),
      "rope_inverse_frequencies");
  EXPECT_EQ(field([](GraphShape& s, BackendLimits&) { s.norm_eps = -1.0f; }), "norm_eps");
  EXPECT_EQ(field([](GraphShape& s, BackendLimits&) { s.context = 0; }), "context");
  EXPECT_EQ(field([](GraphShape&, BackendLimits& l) { l.max_rows = 0; }), "max_rows");
  EXPECT_EQ(field([](GraphShape&, BackendLimits& l) { l.max_rows = 1 << 30; }),
            "max_rows");
}

}  // namespace
}  // namespace renga
