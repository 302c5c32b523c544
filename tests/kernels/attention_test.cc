// Chunked attention and the merge tree: against a plain softmax in double precision, all
// instruction sets against the portable bits, any split against none.

#include <gtest/gtest.h>

#include "tests/kernels/kernel_cases.h"

namespace renga {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// A sequence's pages (in a scrambled order in the pool; unused slots hold NaN) and
// queries for its last `rows` positions.
struct Scene {
  int64_t length;  // Positions written; the last query sees all of them.
  int32_t rows;
  int32_t heads;
  int32_t head_dim;
  bool wide;  // f32 pages.

  std::vector<float> k, v;  // [length, head_dim], as stored (rounded for f16).
  std::vector<float> q;     // [rows, heads, head_dim]
  std::vector<uint8_t> pool;
  std::vector<int32_t> pages;

  int64_t page_bytes() const { return 128 * int64_t{head_dim} * (wide ? 4 : 2); }
};

float Rounded(float value, bool wide) { return wide ? value : F16ToF32(F32ToF16(value)); }

Scene MakeScene(int64_t length, int32_t rows, int32_t heads, int32_t head_dim,
                bool wide) {
  Scene s{.length = length,
          .rows = rows,
          .heads = heads,
          .head_dim = head_dim,
          .wide = wide,
          .k = {},
          .v = {},
          .q = {},
          .pool = {},
          .pages = {}};
  const uint32_t seed = static_cast<uint32_t>(length * 131 + head_dim);
  s.k = RandomFloats(length * head_dim, seed);
  s.v = RandomFloats(length * head_dim, seed + 1);
  s.q = RandomFloats(int64_t{rows} * heads * head_dim, seed + 2,
                     2.0f / std::sqrt(static_cast<float>(head_dim)));
  for (float& value : s.k) value = Rounded(value, wide);
  for (float& value : s.v) value = Rounded(value, wide);
  const int64_t count = (length + 63) / 64;
  s.pool.resize(static_cast<size_t>((count + 1) * s.page_bytes()));
  for (size_t i = 0; i < s.pool.size(); i += wide ? 4 : 2) {
    const uint16_t half_nan = 0x7E00;
    std::memcpy(&s.pool[i], wide ? static_cast<const void*>(&kNan) : &half_nan,
                wide ? 4 : 2);
  }
  for (int64_t i = 0; i < count; ++i) {
    s.pages.push_back(static_cast<int32_t>((i * 7 + 3) % count));
  }
  // A permutation only where 7 and the count share no factor.
  if (count % 7 == 0) {
    for (int64_t i = 0; i < count; ++i)
      s.pages[static_cast<size_t>(i)] = static_cast<int32_t>(count - 1 - i);
  }
  const CpuOps& ops = *FindCpuOps("portable");
  for (int64_t t = 0; t < length; ++t) {
    KvAppendArgs args{
        .k = s.k.data() + t * head_dim,
        .v = s.v.data() + t * head_dim,
        .page = s.pool.data() + s.pages[static_cast<size_t>(t / 64)] * s.page_bytes(),
        .head_dim = head_dim,
        .slot = static_cast<int32_t>(t % 64)};
    wide ? ops.kv_append_f32(args) : ops.kv_append_f16(args);
  }
  return s;
}

AttendArgs ArgsFor(const Scene& s, float* out) {
  const int64_t width = int64_t{s.heads} * s.head_dim;
  return {.q = s.q.data(),
          .q_stride = width,
          .out = out,
          .out_stride = width,
          .rows = s.rows,
          .heads = s.heads,
          .head_dim = s.head_dim,
          .first_position = s.length - s.rows,
          .pool = s.pool.data(),
          .page_stride = s.page_bytes(),
          .pages = s.pages.data(),
          .first_group = 0,
          .groups = (s.length + 255) / 256};
}

GuardedFloats Whole(const CpuOps& ops, const Scene& s) {
  GuardedFloats out(int64_t{s.rows} * s.heads * s.head_dim);
  const AttendArgs args = ArgsFor(s, out.data());
  s.wide ? ops.attend_f32(args) : ops.attend_f16(args);
  EXPECT_TRUE(out.GuardsIntact());
  return out;
}

// softmax over the visible positions, base 2, in double.
std::vector<double> Plain(const Scene& s, int64_t row, int64_t head) {
  const int64_t hd = s.head_dim;
  const float* q = s.q.data() + (row * s.heads + head) * hd;
  std::vector<double> scores;
  double largest = -1e300;
  for (int64_t t = 0; t <= s.length - s.rows + row; ++t) {
    double score = 0.0;
    for (int64_t i = 0; i < hd; ++i) {
      score += static_cast<double>(q[i]) *
               static_cast<double>(s.k[static_cast<size_t>(t * hd + i)]);
    }
    scores.push_back(score);
    largest = std::max(largest, score);
  }
  double total = 0.0;
  std::vector<double> out(static_cast<size_t>(hd), 0.0);
  for (size_t t = 0; t < scores.size(); ++t) {
    const double p = std::exp2(scores[t] - largest);
    total += p;
    for (int64_t i = 0; i < hd; ++i) {
      out[static_cast<size_t>(i)] +=
          p *
          static_cast<double>(s.v[t * static_cast<size_t>(hd) + static_cast<size_t>(i)]);
    }
  }
  for (double& value : out) value /= total;
  return out;
}

std::vector<Scene> Scenes() {
  std::vector<Scene> scenes;
  for (const int64_t length :
       {1, 2, 15, 16, 17, 63, 64, 65, 128, 255, 256, 257, 320, 700}) {
    const int32_t rows = static_cast<int32_t>(std::min<int64_t>(length, 5));
    scenes.push_back(MakeScene(length, rows, 3, 64, length % 2 == 0));
  }
  for (const int32_t head_dim : {2, 6, 10, 16, 18, 48, 80, 128, 130, 256}) {
    scenes.push_back(MakeScene(131, 3, 2, head_dim, head_dim % 4 == 0));
  }
  scenes.push_back(MakeScene(70, 70, 1, 32, false));  // A whole prompt, many tiles.
  scenes.push_back(MakeScene(300, 90, 8, 32, false));
  return scenes;
}

TEST(Attention, EqualsPlainSoftmaxAndReadsNoUnseenPosition) {
  for (const Scene& s : Scenes()) {
    for (const CpuOps* ops : MachineOps()) {
      SCOPED_TRACE(std::string(ops->name) + " length " + std::to_string(s.length) +
                   " head_dim " + std::to_string(s.head_dim));
      const GuardedFloats out = Whole(*ops, s);
      for (int64_t row = 0; row < s.rows; ++row) {
        for (int64_t head = 0; head < s.heads; ++head) {
          const std::vector<double> want = Plain(s, row, head);
          for (int64_t i = 0; i < s.head_dim; ++i) {
            // Measured: 4e-7; a NaN of an unseen slot would fail as well.
            ASSERT_NEAR(out[(row * s.heads + head) * s.head_dim + i],
                        want[static_cast<size_t>(i)], 4e-6);
          }
        }
      }
    }
  }
}

TEST(Attention, EveryInstructionSetGivesTheSameBits) {
  for (const Scene& s : Scenes()) {
    const GuardedFloats expected = Whole(*FindCpuOps("portable"), s);
    for (const CpuOps* ops : MachineOps()) {
      EXPECT_TRUE(Whole(*ops, s).SameBits(expected))
          << ops->name << " length " << s.length << " head_dim " << s.head_dim;
    }
  }
}

TEST(Attention, RowsAloneGiveTheBitsOfASlice) {
  const Scene s = MakeScene(262, 13, 3, 64, false);
  const int64_t width = int64_t{s.heads} * s.head_dim;
  for (const CpuOps* ops : MachineOps()) {
    const GuardedFloats together = Whole(*ops, s);
    GuardedFloats out(s.rows * width);
    for (int32_t row = 0; row < s.rows; ++row) {
      AttendArgs args = ArgsFor(s, out.data() + row * width);
      args.q += row * width;
      args.rows = 1;
      args.first_position += row;
      ops->attend_f16(args);
    }
    EXPECT_TRUE(out.SameBits(together)) << ops->name;
  }
}

// Items cut anywhere between groups, folded by merge_partials, give the bits of one item.
TEST(Attention, SplittingGroupsOverItemsChangesNoBit) {
  for (const int64_t length : {257, 700, 1030}) {
    const Scene s = MakeScene(length, 4, 3, 64, false);
    const int64_t width = int64_t{s.heads} * s.head_dim;
    const int64_t groups = (length + 255) / 256;
    const int64_t head_stride = groups * (2 + s.head_dim);
    const std::vector<int32_t> slots = {2, 0, 3, 1};
    for (const CpuOps* ops : MachineOps()) {
      const GuardedFloats expected = Whole(*ops, s);
      for (int64_t cut = 1; cut < groups; ++cut) {
        GuardedFloats out(s.rows * width);
        GuardedFloats partials(4 * s.heads * head_stride);
        AttendArgs args = ArgsFor(s, out.data());
        args.partials = partials.data();
        args.partial_rows = slots.data();
        args.partial_head_stride = head_stride;
        args.partial_row_stride = s.heads * head_stride;
        args.groups = cut;
        ops->attend_f16(args);
        args.first_group = cut;
        args.groups = groups - cut;
        ops->attend_f16(args);
        EXPECT_TRUE(partials.GuardsIntact());
        for (int64_t row = 0; row < s.rows; ++row) {
          const int64_t needed = (s.length - s.rows + row) / 256 + 1;
          if (needed <= cut) continue;  // The first item wrote the output.
          for (int64_t head = 0; head < s.heads; ++head) {
            ops->merge_partials(
                partials.data() +
                    slots[static_cast<size_t>(row)] * args.partial_row_stride +
                    head * head_stride,
                needed, s.head_dim, out.data() + row * width + head * s.head_dim);
          }
        }
        EXPECT_TRUE(out.SameBits(expected))
            << ops->name << " " << length << " at " << cut;
      }
    }
  }
}

// A later row of the same tile may hold an infinite value: earlier rows must not notice.
TEST(Attention, AnInfiniteValueReachesOnlyTheRowsThatSeeIt) {
  Scene s = MakeScene(80, 4, 1, 64, true);
  const GuardedFloats before = Whole(*FindCpuOps("portable"), s);
  const size_t v =
      static_cast<size_t>(s.pages[1] * s.page_bytes() + (64 + 79 % 64) * int64_t{64} * 4);
  const float infinity = std::numeric_limits<float>::infinity();
  std::memcpy(&s.pool[v], &infinity, 4);
  for (const CpuOps* ops : MachineOps()) {
    const GuardedFloats out = Whole(*ops, s);
    for (int64_t i = 0; i < 3 * 64; ++i) ASSERT_EQ(out[i], before[i]) << ops->name;
    EXPECT_TRUE(std::isinf(out[3 * 64])) << ops->name;
  }
}

}  // namespace
}  // namespace renga
