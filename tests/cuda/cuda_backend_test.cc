// The fused steps of the CUDA backend under the emulator: against a forward pass in
// double precision and against the CPU, and the sameness of results over company, slices,
// graphs and the order in which the device runs its threads.

#include "backend/cuda_backend.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "tests/backend/tiny_company.h"
#include "tests/backend/tiny_model.h"
#include "tests/backend/tiny_reference.h"
#include "tests/cuda/emulated_backend.h"

namespace renga {
namespace {

using test::EmulatedCuda;
using test::EmulatedOptions;
using test::MakeEmulatedCuda;
using ::testing::HasSubstr;

// Activations in f16: of the largest logit.
constexpr double kHalfBound = 1e-2;

// A runner on an emulated device, which it keeps alive.
struct CudaRunner {
  CudaRunner(const TinyModel& model, KvDtype dtype, const EmulatedOptions& options = {})
      : cuda(MakeEmulatedCuda(options)), runner(model, std::move(cuda.backend), dtype) {}

  EmulatedCuda cuda;
  TinyRunner runner;
};

TEST(CudaBackend, AForwardPassEqualsDoublePrecisionWithinTheBound) {
  for (const std::vector<TensorType>& types : kTypeMixes) {
    for (const RopeStyle style : {RopeStyle::kAdjacentPairs, RopeStyle::kHalves}) {
      GraphShape shape = TinyShape();
      shape.rope_style = style;
      const TinyModel model = MakeModel(types, shape);
      CudaRunner cuda(model, KvDtype::kF16);
      TinySequence s = MakeSequence(70, 1, cuda.runner.free_pages);
      ExpectClose(cuda.runner.Step({&s}, {70})[0], ReferenceLogits(model, s.ids),
                  kHalfBound);
      TinySequence t = MakeSequence(71, 1, cuda.runner.free_pages);
      cuda.runner.Step({&t}, {70});
      ExpectClose(cuda.runner.Step({&t}, {1})[0], ReferenceLogits(model, t.ids),
                  kHalfBound);
    }
  }
}

TEST(CudaBackend, OtherPageDtypesStayNearDoublePrecision) {
  const TinyModel model = MakeModel({TensorType::kF32}, TinyShape());
  for (const KvDtype dtype : {KvDtype::kInt8, KvDtype::kBf16}) {
    CudaRunner cuda(model, dtype);
    TinySequence s = MakeSequence(150, 1, cuda.runner.free_pages);
    ExpectClose(cuda.runner.Step({&s}, {150})[0], ReferenceLogits(model, s.ids), 3e-2);
  }
}

void ExpectSameBits(const std::vector<std::vector<float>>& expected,
                    const std::vector<std::vector<float>>& got, const std::string& what) {
  ASSERT_EQ(got.size(), expected.size());
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_EQ(std::memcmp(got[i].data(), expected[i].data(), got[i].size() * 4), 0)
        << what << ", result " << i;
  }
}

TEST(CudaBackend, ResultsDoNotDependOnCompanySlicesGraphsOrTheOrderOfThreads) {
  if (!test::kSimtHooks) GTEST_SKIP() << "takes minutes under a sanitizer";
  for (const KvDtype dtype : {KvDtype::kF16, KvDtype::kInt8}) {
    const TinyModel model = MakeModel(kTypeMixes[4], TinyShape());
    std::vector<std::vector<float>> expected;
    for (size_t i = 0; i < std::size(kLengths); ++i) {
      CudaRunner cuda(model, dtype);
      TinySequence s =
          MakeSequence(kLengths[i] + 1, static_cast<uint32_t>(i), cuda.runner.free_pages);
      expected.push_back(cuda.runner.Step({&s}, {kLengths[i]})[0]);
      expected.push_back(cuda.runner.Step({&s}, {1})[0]);
    }
    for (const int32_t slice : {1000, 64, 17}) {
      EmulatedOptions options;
      options.device.simt.checks = slice == 64;
      options.device.simt.counters = false;
      options.backend.graphs = slice == 64;
      options.device.simt.seed = static_cast<uint32_t>(slice);
      CudaRunner cuda(model, dtype, options);
      ExpectSameBits(
          expected, TinyTogether(cuda.runner, slice, 0),
          std::string(KvDtypeName(dtype)) + ", slices of " + std::to_string(slice));
    }
  }
}

TEST(CudaBackend, ADecodeStepIsReplayedAndHasTheBitsOfOneThatIsNot) {
  const TinyModel model = MakeModel({TensorType::kQ4_1}, TinyShape());
  for (const KvDtype dtype : {KvDtype::kF16, KvDtype::kInt8}) {
    std::vector<std::vector<float>> expected;
    for (const bool graphs : {false, true}) {
      EmulatedOptions options;
      options.backend.graphs = graphs;
      CudaRunner cuda(model, dtype, options);
      TinySequence a = MakeSequence(70, 1, cuda.runner.free_pages);
      TinySequence b = MakeSequence(300, 2, cuda.runner.free_pages);
      TinySequence c = MakeSequence(20, 3, cuda.runner.free_pages);
      cuda.runner.Step({&a, &b}, {60, 280});
      const int64_t launched = cuda.cuda.counting->launches;
      std::vector<std::vector<float>> logits;
      for (int i = 0; i < 8; ++i) {  // a crosses a page, b stays in its third group.
        const auto step = cuda.runner.Step({&a, &b}, {1, 1});
        logits.insert(logits.end(), step.begin(), step.end());
      }
      if (graphs) {
        EXPECT_EQ(cuda.cuda.counting->replays, 8);
        EXPECT_EQ(cuda.cuda.counting->launches, launched);
        ExpectSameBits(expected, logits, std::string(KvDtypeName(dtype)));
        // A prompt in the step: one by one.
        cuda.runner.Step({&a, &c}, {1, 17});
        EXPECT_EQ(cuda.cuda.counting->replays, 8);
        cuda.runner.Step({&a, &b, &c}, {1, 1, 1});
        EXPECT_EQ(cuda.cuda.counting->replays, 9);
      } else {
        EXPECT_EQ(cuda.cuda.counting->captures, 0);
        expected = logits;
      }
    }
  }
}

TEST(CudaBackend, WithoutGraphsWhereTheyCannotBeCaptured) {
  const TinyModel model = MakeModel({TensorType::kF16}, TinyShape());
  CudaRunner cuda(model, KvDtype::kF16);
  cuda.cuda.counting->fail = [](const char* call) {
    return std::string(call) == "BeginCapture" ? Internal("not today") : OkStatus();
  };
  TinySequence s = MakeSequence(10, 1, cuda.runner.free_pages);
  cuda.runner.Step({&s}, {5});
  const auto logits = cuda.runner.Step({&s}, {1});
  EXPECT_EQ(cuda.cuda.counting->replays, 0);
  TinySequence t = MakeSequence(10, 1, cuda.runner.free_pages);
  t.ids.resize(6);
  ExpectClose(logits[0], ReferenceLogits(model, t.ids), kHalfBound);
}

TEST(CudaBackend, LibraryProductsAreNearTheOwnOnes) {
  const TinyModel model = MakeModel(kTypeMixes[4], TinyShape());
  EmulatedOptions options;
  options.backend.row_invariant = false;
  options.device.simt.counters = false;
  CudaRunner cuda(model, KvDtype::kF16, options);
  TinySequence few = MakeSequence(100, 2, cuda.runner.free_pages);
  cuda.runner.Step({&few}, {100});
  EXPECT_EQ(cuda.cuda.counting->gemms, 0);
  TinySequence s = MakeSequence(260, 1, cuda.runner.free_pages);
  ExpectClose(cuda.runner.Step({&s}, {260})[0], ReferenceLogits(model, s.ids),
              kHalfBound);
  EXPECT_GT(cuda.cuda.counting->gemms, 0);
  EXPECT_THAT(cuda.runner.backend().info().numerics_id, HasSubstr("renga-cuda-rows-1"));
}

TEST(CudaBackend, PagesTravelAndTheirHeadsAreCopied) {
  const TinyModel model = MakeModel({TensorType::kF16}, TinyShape());
  CudaRunner cuda(model, KvDtype::kF16);
  Backend& backend = cuda.runner.backend();
  TinySequence s = MakeSequence(100, 1, cuda.runner.free_pages);
  const auto first = cuda.runner.Step({&s}, {99});
  // The same pages elsewhere; the head of the second one copied.
  TinySequence t = s;
  t.pages = {cuda.runner.free_pages[0], cuda.runner.free_pages[1]};
  std::vector<std::byte> bytes(static_cast<size_t>(backend.page_bytes()));
  ASSERT_EQ(backend.ReadPage(s.pages[0], bytes).ToString(), "OK");
  ASSERT_EQ(backend.WritePage(t.pages[0], bytes).ToString(), "OK");
  ASSERT_EQ(backend.CopyPageHead(s.pages[1], t.pages[1], 35).ToString(), "OK");
  ExpectSameBits(cuda.runner.Step({&s}, {1}), cuda.runner.Step({&t}, {1}), "elsewhere");

  bytes.pop_back();
  EXPECT_EQ(backend.ReadPage(0, bytes).field(), "bytes");
  EXPECT_EQ(backend.WritePage(0, bytes).field(), "bytes");
  EXPECT_EQ(backend.CopyPageHead(0, 64, 5).field(), "page");
  EXPECT_EQ(backend.CopyPageHead(-1, 0, 5).field(), "page");
  EXPECT_EQ(backend.CopyPageHead(0, 1, 65).field(), "tokens");
}

TEST(CudaBackend, OpenPagesAreCopiedToo) {
  const TinyModel model = MakeModel({TensorType::kF16}, TinyShape());
  CudaRunner cuda(model, KvDtype::kInt8);
  TinySequence s = MakeSequence(100, 1, cuda.runner.free_pages);
  cuda.runner.Step({&s}, {99});
  TinySequence t = s;  // Shares the whole page.
  t.pages[1] = cuda.runner.free_pages[0];
  t.open_page = 7;
  ASSERT_EQ(cuda.runner.backend().CopyPageHead(s.open_page, 7, 35).ToString(), "OK");
  ExpectSameBits(cuda.runner.Step({&s}, {1}), cuda.runner.Step({&t}, {1}), "copy");
}

TEST(CudaBackend, IsKnownByItsDeviceAndNumerics) {
  const TinyModel model = MakeModel({TensorType::kF16}, TinyShape());
  CudaRunner cuda(model, KvDtype::kInt8);
  const BackendInfo info = cuda.runner.backend().info();
  EXPECT_THAT(info.name, HasSubstr("cuda:0/"));
  EXPECT_THAT(info.numerics_id, HasSubstr("renga-cuda-1/sm_"));
  EXPECT_THAT(info.numerics_id, HasSubstr("/kv-int8.1"));
  EXPECT_EQ(cuda.runner.backend().page_layout().id, kPageLayoutInt8.id);
}

// ---- What is refused, and what fails -------------------------------------------------

Status Configure(const std::function<void(GraphShape&, BackendLimits&)>& change) {
  GraphShape shape = TinyShape();
  BackendLimits limits{
      .max_rows = 8, .max_logit_rows = 8, .max_sequences = 8, .max_pages = 4};
  change(shape, limits);
  EmulatedCuda cuda = MakeEmulatedCuda();
  return cuda.backend->Configure(shape, limits);
}

TEST(CudaBackend, RefusesShapesItHasNoKernelFor) {
  EXPECT_TRUE(Configure([](GraphShape&, BackendLimits&) {}).ok());
  EXPECT_EQ(Configure([](GraphShape& s, BackendLimits&) { s.dim = 0; }).field(), "dim");
  EXPECT_EQ(Configure([](GraphShape& s, BackendLimits&) { s.head_dim = 34; }).field(),
            "head_dim");
  EXPECT_EQ(Configure([](GraphShape& s, BackendLimits&) { s.dim = 16448; }).field(),
            "dim");
  EXPECT_EQ(Configure([](GraphShape&, BackendLimits& l) { l.max_rows = 0; }).field(),
            "max_rows");
}

TEST(CudaBackend, RefusesPagesItHasNoKernelFor) {
  EmulatedCuda cuda = MakeEmulatedCuda();
  const GraphShape shape = TinyShape();
  EXPECT_EQ(cuda.backend->CheckKv({2, 2, 16, KvDtype::kF32}).field(), "kv.dtype");
  EXPECT_TRUE(cuda.backend->CheckKv({2, 2, 16, KvDtype::kBf16}).ok());
  EXPECT_FALSE(cuda.backend->CreateKvPool({2, 2, 16, KvDtype::kF16}, 4).ok());
  ASSERT_TRUE(
      cuda.backend
          ->Configure(
              shape,
              {.max_rows = 8, .max_logit_rows = 8, .max_sequences = 8, .max_pages = 4})
          .ok());
  EXPECT_EQ(cuda.backend->CreateKvPool({2, 2, 16, KvDtype::kF32}, 4).field(), "kv.dtype");
  EXPECT_FALSE(cuda.backend->CreateKvPool({2, 1, 16, KvDtype::kF16}, 4).ok());
  EXPECT_FALSE(cuda.backend->CreateKvPool({2, 2, 16, KvDtype::kF16}, 0).ok());
  EXPECT_EQ(
      cuda.backend
          ->CreateKvPool({2, 2, 16, KvDtype::kF16}, std::numeric_limits<int64_t>::max())
          .field(),
      "kv.pool_bytes");
  EXPECT_TRUE(cuda.backend->CreateKvPool({2, 2, 16, KvDtype::kF16}, 4).ok());
}

TEST(CudaBackend, MissingMemoryIsNamedWithItsSize) {
  EmulatedOptions options;
  options.device.total_bytes = 3 << 20;
  EmulatedCuda cuda = MakeEmulatedCuda(options);
  ASSERT_EQ(
      cuda.backend
          ->Configure(
              TinyShape(),
              {.max_rows = 8, .max_logit_rows = 8, .max_sequences = 8, .max_pages = 4})
          .ToString(),
      "OK");
  // A page takes 2 layers x 2 KV heads x 64 positions x 16 channels x 2 halves = 16 KiB.
  const Status status = cuda.backend->CreateKvPool({2, 2, 16, KvDtype::kF16}, 1000);
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(status.message(), HasSubstr("kv.pool_bytes"));
  EXPECT_THAT(status.message(), HasSubstr("16384000 bytes"));
  EXPECT_THAT(status.message(), HasSubstr("are missing"));
}

TEST(CudaBackend, AnyAllocationMayFailAtStartAndNothingLeaks) {
  const TinyModel model = MakeModel({TensorType::kQ8_0}, TinyShape());
  const int64_t before = MemoryLedger::Process().Read(MemoryPurpose::kKvPool).bytes;
  bool failed = true;
  for (int n = 0; failed; ++n) {
    ASSERT_LT(n, 100);
    EmulatedCuda cuda = MakeEmulatedCuda();
    int left = n;
    cuda.counting->fail = [&](const char* call) {
      if (std::string(call) != "Allocate" || left-- > 0) return OkStatus();
      return ResourceExhausted("no more");
    };
    const auto start = [&]() -> Status {
      Backend& backend = *cuda.backend;
      Status status = backend.Configure(
          model.shape,
          {.max_rows = 8, .max_logit_rows = 8, .max_sequences = 8, .max_pages = 4});
      const TensorView view = model.embedding.view();
      if (status.ok()) status = backend.LoadMatrix({&view, 1}).status();
      if (status.ok()) status = backend.LoadVector(model.output_norm).status();
      if (status.ok()) status = backend.CreateKvPool({2, 2, 16, KvDtype::kInt8}, 4);
      return status;
    };
    const Status status = start();
    failed = !status.ok();
    if (failed) {
      EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
    }
  }
  EXPECT_EQ(MemoryLedger::Process().Read(MemoryPurpose::kKvPool).bytes, before);
}

TEST(CudaBackend, ALostDeviceIsUnavailableWhereverItShows) {
  const TinyModel model = MakeModel({TensorType::kF16}, TinyShape());
  for (const char* where : {"Launch", "Replay"}) {
    CudaRunner cuda(model, KvDtype::kF16);
    TinySequence s = MakeSequence(10, 1, cuda.runner.free_pages);
    cuda.runner.Step({&s}, {5});
    cuda.cuda.counting->fail = [&](const char* call) {
      return std::string(call) == where ? Unavailable("lost") : OkStatus();
    };
    const bool decode = std::string(where) == "Replay";
    const TokenId tokens[] = {1, 2, 3};
    const std::span<const TokenId> ids(tokens, decode ? 1 : 3);
    const SequenceRows rows{.first_row = 0,
                            .rows = static_cast<int32_t>(ids.size()),
                            .first_position = 5,
                            .pages = s.pages};
    const int32_t logit_row = rows.rows - 1;
    const auto items = cuda.runner.Plan({rows}, 0);
    const Status status = cuda.runner.TryForward(
        {.tokens = ids, .sequences = {&rows, 1}, .logit_rows = {&logit_row, 1}}, {items});
    EXPECT_EQ(status.code(), StatusCode::kUnavailable) << where;
  }
}

TEST(CudaBackend, StepsOutOfOrderAreRefused) {
  const TinyModel model = MakeModel({TensorType::kF16}, TinyShape());
  CudaRunner cuda(model, KvDtype::kF16);
  Backend& backend = cuda.runner.backend();
  EXPECT_EQ(backend.Attend(0).code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(backend.Logits(0).status().field(), "logit_row");
  TinySequence s = MakeSequence(10, 1, cuda.runner.free_pages);
  cuda.runner.Step({&s}, {5});
  EXPECT_EQ(backend.Attend(2).field(), "layer");
  EXPECT_EQ(backend.Embed(MatrixId{99}).field(), "embedding");
  EXPECT_EQ(backend.Head(VectorId{99}, MatrixId{1}).field(), "output_norm");
  EXPECT_EQ(backend.Logits(1).status().field(), "logit_row");
}

}  // namespace
}  // namespace renga
