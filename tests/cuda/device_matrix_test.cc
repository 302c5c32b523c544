#include "backend/device_matrix.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <vector>

#include "tests/backend/tiny_model.h"
#include "tests/simt/simt_device.h"

namespace renga {
namespace {

using test::SimtDevice;

class DeviceMatrixTest : public ::testing::Test {
 protected:
  StatusOr<DeviceMatrix> Load(const std::vector<TensorView>& views) {
    auto matrix = DeviceMatrix::Load(views, uploader_, arena_, pool_);
    EXPECT_EQ(uploader_.Finish().ToString(), "OK");
    return matrix;
  }
  std::vector<uint8_t> Bytes(const DeviceMatrix::Segment& segment, int64_t cols) {
    std::vector<uint8_t> bytes(
        static_cast<size_t>(cuda::DeviceWeightBytes(segment.type, segment.rows, cols)));
    EXPECT_TRUE(device_
                    .CopyToHost(bytes.data(), segment.data,
                                static_cast<int64_t>(bytes.size()), stream_)
                    .ok());
    EXPECT_TRUE(device_.Synchronize(stream_).ok());
    return bytes;
  }

  SimtDevice device_{{}};
  StreamId stream_ = device_.CreateStream().value();
  DeviceArena arena_{device_, MemoryPurpose::kWeights, 0};
  // Smaller than most matrices here.
  WeightUploader uploader_ = WeightUploader::Make(device_, 4096).value();
  ThreadPool pool_{2};
  std::mt19937 random_{1};
};

TEST_F(DeviceMatrixTest, NeighboursOfOneTypeAreOneSegmentWithTheirRowsInOrder) {
  // Enough rows for several pieces of work.
  const TinyMatrix q = MakeMatrix(TensorType::kQ4_1, 272, 64, random_);
  const TinyMatrix k = MakeMatrix(TensorType::kQ4_1, 150, 64, random_);
  const auto stacked = Load({q.view(), k.view()});
  ASSERT_TRUE(stacked.ok()) << stacked.status().ToString();
  ASSERT_EQ(stacked->segments().size(), 1u);
  EXPECT_EQ(stacked->rows(), 422);
  EXPECT_EQ(stacked->cols(), 64);
  // The same as one matrix.
  TinyMatrix whole = q;
  whole.rows += k.rows;
  whole.bytes.insert(whole.bytes.end(), k.bytes.begin(), k.bytes.end());
  const auto expected = Load({whole.view()});
  ASSERT_TRUE(expected.ok());
  EXPECT_EQ(Bytes(stacked->segments()[0], 64), Bytes(expected->segments()[0], 64));
}

TEST_F(DeviceMatrixTest, OtherTypesAndRaggedRowsBeginASegment) {
  const TinyMatrix a = MakeMatrix(TensorType::kF32, 20, 64, random_);
  const TinyMatrix b = MakeMatrix(TensorType::kF16, 32, 64, random_);
  const TinyMatrix c = MakeMatrix(TensorType::kQ8_0, 16, 64, random_);
  const auto matrix = Load({a.view(), b.view(), b.view(), c.view()});
  ASSERT_TRUE(matrix.ok());
  ASSERT_EQ(matrix->segments().size(), 3u);
  EXPECT_EQ(matrix->segments()[0].rows, 20);
  EXPECT_EQ(matrix->segments()[1].rows, 64);
  EXPECT_EQ(matrix->segments()[1].first_row, 20);
  EXPECT_EQ(matrix->segments()[2].first_row, 84);
  EXPECT_EQ(matrix->segments()[2].type, cuda::DeviceWeightType::kQ8);
}

TEST_F(DeviceMatrixTest, WhatCannotBeLoadedIsNamed) {
  const auto field = [&](const std::vector<TensorView>& views) {
    return Load(views).status().field();
  };
  TinyMatrix odd = MakeMatrix(TensorType::kF32, 4, 36, random_);
  TensorView view = odd.view();
  view.name = "blk.0.attn_q.weight";
  EXPECT_EQ(field({view}), "blk.0.attn_q.weight");  // 36 columns.
  EXPECT_EQ(field({}), "tensor");
  TinyMatrix large = MakeMatrix(TensorType::kF32, 4, 64, random_);
  for (const float value : {1e5f, std::numeric_limits<float>::quiet_NaN()}) {
    std::memcpy(&large.bytes[70 * 4], &value, 4);
    view = large.view();
    view.name = "output.weight";
    const Status status = Load({view}).status();
    EXPECT_EQ(status.field(), "output.weight");
    EXPECT_THAT(status.message(), ::testing::HasSubstr("a half can hold"));
  }
}

}  // namespace
}  // namespace renga
