// Attention over int8 pages: against a plain softmax in double precision over what the
// pages say, all instruction sets against the portable bits, any split against none, and
// a row's own chunk against attend_f16.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "tests/kernels/int8_pages.h"

namespace renga {
namespace {

constexpr double kLn2 = 0.6931471805599453;

// A sequence: its chunks in f16 form, their int8 pages in a scrambled order, and queries
// for its last `rows` positions. What no row may read is NaN.
struct Scene {
  int64_t length;  // Positions written; the last query sees all of them.
  int32_t rows;
  int32_t heads;
  int32_t head_dim;

  std::vector<float> q;                    // [rows, heads, head_dim]
  std::vector<HalfChunk> chunks;           // Rounded values, NaN behind the last one.
  std::vector<std::vector<uint8_t>> open;  // f16 pages of all chunks.
  std::vector<uint8_t> pool;               // int8 pages.
  std::vector<int32_t> pages;
  std::vector<const uint8_t*> own;  // From the first row's chunk on.

  int64_t first_position() const { return length - rows; }
  int64_t page_bytes() const { return Int8PageOf(head_dim).bytes; }
  uint8_t* Page(int64_t chunk) {
    return pool.data() + pages[static_cast<size_t>(chunk)] * page_bytes();
  }
  const uint8_t* Page(int64_t chunk) const {
    return pool.data() + pages[static_cast<size_t>(chunk)] * page_bytes();
  }
};

// Lays out the pages of `s` after its chunks were set.
void LayOut(Scene& s) {
  const int64_t count = static_cast<int64_t>(s.chunks.size());
  s.pages.clear();
  for (int64_t i = 0; i < count; ++i) {
    s.pages.push_back(
        static_cast<int32_t>(count % 7 == 0 ? count - 1 - i : i * 7 % count));
  }
  s.pool.assign(static_cast<size_t>(count * s.page_bytes()), 0xFF);
  s.open.clear();
  for (int64_t i = 0; i < count; ++i) {
    const HalfChunk& chunk = s.chunks[static_cast<size_t>(i)];
    s.open.push_back(chunk.Page());
    // A chunk is closed for the rows after it.
    if ((i + 1) * 64 >= s.length) continue;
    const std::vector<uint8_t> page = Closed(*FindCpuOps("portable"), chunk);
    std::copy_n(page.begin(), s.page_bytes(), s.Page(i));
  }
  const int64_t first_own = s.first_position() / 64;
  // Chunks before the first own one must not be read in their f16 form.
  for (int64_t i = 0; i < first_own; ++i)
    std::fill(s.open[static_cast<size_t>(i)].begin(),
              s.open[static_cast<size_t>(i)].end(), uint8_t{0xFF});
  s.own.clear();
  for (int64_t i = first_own; i < count; ++i)
    s.own.push_back(s.open[static_cast<size_t>(i)].data());
}

// `edit` may change each chunk before it is laid out.
Scene MakeScene(int64_t length, int32_t rows, int32_t heads, int32_t head_dim,
                const std::function<void(HalfChunk&)>& edit = {}) {
  Scene s{.length = length,
          .rows = rows,
          .heads = heads,
          .head_dim = head_dim,
          .q = {},
          .chunks = {},
          .open = {},
          .pool = {},
          .pages = {},
          .own = {}};
  const uint32_t seed = static_cast<uint32_t>(length * 131 + head_dim);
  s.q = RandomFloats(int64_t{rows} * heads * head_dim, seed,
                     2.0f / std::sqrt(static_cast<float>(head_dim)));
  for (int64_t first = 0; first < length; first += 64) {
    HalfChunk chunk = RandomChunk(head_dim, seed + 2 + static_cast<uint32_t>(first));
    if (edit) edit(chunk);
    for (int64_t t = length - first; t < 64; ++t) {
      for (int64_t c = 0; c < head_dim; ++c) {
        const size_t i = static_cast<size_t>(t * head_dim + c);
        chunk.k[i] = chunk.v[i] = 0x7E00;
      }
    }
    s.chunks.push_back(chunk);
  }
  LayOut(s);
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
          .first_position = s.first_position(),
          .pool = s.pool.data(),
          .page_stride = s.page_bytes(),
          .pages = s.pages.data(),
          .own = s.own.data(),
          .first_own_chunk = s.first_position() / 64,
          .first_group = 0,
          .groups = (s.length + 255) / 256};
}

GuardedFloats Whole(const CpuOps& ops, const Scene& s) {
  GuardedFloats out(int64_t{s.rows} * s.heads * s.head_dim);
  ops.attend_int8(ArgsFor(s, out.data()));
  EXPECT_TRUE(out.GuardsIntact());
  return out;
}

// softmax over the visible positions, base 2, and how far 16 bits of a query and 15 of a
// probability may lie from it.
struct Expected {
  std::vector<double> o;
  double bound = 0.0;
};

// Scores of one query over a closed page; returns what rounding q * step may change.
double PageScores(const DecodedPage& page, const float* q, std::vector<double>& scores) {
  double largest = 0.0;  // Of |q * step|.
  for (int64_t c = 0; c < page.hd; ++c) {
    largest = std::max(
        largest, std::abs(static_cast<double>(q[c]) * page.step[static_cast<size_t>(c)]));
  }
  double worst = 0.0;
  for (int64_t t = 0; t < 64; ++t) {
    double score = 0.0;
    double codes = 0.0;
    double magnitude = 0.0;
    for (int64_t c = 0; c < page.hd; ++c) {
      const double term = static_cast<double>(q[c]) * page.Key(t, c);
      score += term;
      magnitude += std::abs(term) +
                   std::abs(static_cast<double>(q[c]) * page.min[static_cast<size_t>(c)]);
      codes += page.k_code[static_cast<size_t>(t * page.hd + c)];
    }
    scores.push_back(score);
    // A code is off by half at most, by one where its low plane would be -128.
    worst = std::max(worst, codes * 0.75 * largest / 32512 + magnitude * 1e-6);
  }
  return worst;
}

Expected Plain(const Scene& s, int64_t row, int64_t head) {
  const int64_t hd = s.head_dim;
  const float* q = s.q.data() + (row * s.heads + head) * hd;
  const int64_t position = s.first_position() + row;
  std::vector<double> scores;
  std::vector<double> v;  // [position + 1, hd]
  double score_error = 0.0;
  double largest_value = 0.0;
  for (int64_t chunk = 0; chunk <= position / 64; ++chunk) {
    const HalfChunk& halves = s.chunks[static_cast<size_t>(chunk)];
    const bool own = chunk == position / 64;
    const DecodedPage page = own ? DecodedPage{} : Decode(s.Page(chunk), hd);
    if (!own) score_error = std::max(score_error, PageScores(page, q, scores));
    for (int64_t t = 0; t < (own ? position % 64 + 1 : 64); ++t) {
      double score = 0.0;
      for (int64_t c = 0; c < hd; ++c) {
        const size_t i = static_cast<size_t>(t * hd + c);
        if (own) score += static_cast<double>(q[c]) * HalfValue(halves.k[i]);
        v.push_back(own ? HalfValue(halves.v[i]) : page.Value(t, c));
        largest_value = std::max(largest_value, std::abs(v.back()));
      }
      if (own) scores.push_back(score);
    }
  }
  const double m = *std::max_element(scores.begin(), scores.end());
  double total = 0.0;
  Expected out{.o = std::vector<double>(static_cast<size_t>(hd), 0.0)};
  for (size_t t = 0; t < scores.size(); ++t) {
    const double p = std::exp2(scores[t] - m);
    total += p;
    for (size_t c = 0; c < out.o.size(); ++c) out.o[c] += p * v[t * out.o.size() + c];
  }
  for (double& value : out.o) value /= total;
  // A weight is off by half of its largest / 32767, in each of 64 positions; every
  // chunk's largest weight is at most its l times the largest scale.
  const double weights = 64 * 0.5 / 32767;
  const double softmax = 2 * std::expm1(2 * kLn2 * score_error);
  out.bound = largest_value * (weights + softmax + 4e-6) + 1e-30;
  return out;
}

void ExpectNear(const GuardedFloats& out, const Scene& s, double* squares = nullptr) {
  for (int64_t row = 0; row < s.rows; ++row) {
    for (int64_t head = 0; head < s.heads; ++head) {
      const Expected want = Plain(s, row, head);
      for (int64_t c = 0; c < s.head_dim; ++c) {
        const double got =
            static_cast<double>(out[(row * s.heads + head) * s.head_dim + c]);
        const double error = got - want.o[static_cast<size_t>(c)];
        ASSERT_LE(std::abs(error), want.bound) << "row " << row << " channel " << c;
        if (squares != nullptr) *squares += error * error;
      }
    }
  }
}

std::vector<Scene> Scenes() {
  std::vector<Scene> scenes;
  for (const int64_t length : {1, 2, 17, 63, 64, 65, 66, 127, 128, 129, 130, 192, 255,
                               256, 257, 260, 321, 700, 1100}) {
    const int32_t rows = static_cast<int32_t>(std::min<int64_t>(length, 5));
    scenes.push_back(MakeScene(length, rows, 3, 64));
  }
  for (int32_t head_dim = 16; head_dim <= 256; head_dim += 16) {
    scenes.push_back(MakeScene(131, 4, 2, head_dim));
  }
  for (const int32_t heads : {1, 2, 4, 5, 6, 7, 8, 16}) {
    scenes.push_back(MakeScene(194, 4, heads, 32));
    scenes.push_back(MakeScene(140, 1, heads, 48));
  }
  scenes.push_back(MakeScene(200, 200, 3, 32));  // A whole prompt in one slice.
  scenes.push_back(MakeScene(300, 140, 1, 16));
  return scenes;
}

TEST(AttentionInt8, EqualsPlainSoftmaxOverWhatThePagesSay) {
  double squares = 0.0;
  int64_t count = 0;
  for (const Scene& s : Scenes()) {
    SCOPED_TRACE("length " + std::to_string(s.length) + " heads " +
                 std::to_string(s.heads) + " head_dim " + std::to_string(s.head_dim));
    const GuardedFloats out = Whole(*BestCpuOps(), s);
    ASSERT_NO_FATAL_FAILURE(ExpectNear(out, s, &squares));
    count += out.size();
  }
  // Values of deviation 1.
  EXPECT_LT(std::sqrt(squares / static_cast<double>(count)), 8e-5);
}

TEST(AttentionInt8, EveryInstructionSetGivesTheSameBits) {
  for (const Scene& s : Scenes()) {
    const GuardedFloats expected = Whole(*FindCpuOps("portable"), s);
    for (const CpuOps* ops : MachineOps()) {
      EXPECT_TRUE(Whole(*ops, s).SameBits(expected))
          << ops->name << " length " << s.length << " heads " << s.heads << " head_dim "
          << s.head_dim;
    }
  }
}

// Against the values before they were coded: what int8 costs a random chunk.
TEST(AttentionInt8, IsCloseToTheSoftmaxOverTheF16Form) {
  const Scene s = MakeScene(700, 3, 3, 64);
  const GuardedFloats out = Whole(*BestCpuOps(), s);
  double squares = 0.0;
  for (int64_t query = 0; query < s.rows * s.heads; ++query) {
    const float* q = s.q.data() + query * 64;
    double total = 0.0;
    std::vector<double> o(64, 0.0);
    for (int64_t t = 0; t <= s.first_position() + query / s.heads; ++t) {
      const HalfChunk& chunk = s.chunks[static_cast<size_t>(t / 64)];
      const size_t at = static_cast<size_t>(t % 64 * 64);
      double score = 0.0;
      for (size_t c = 0; c < 64; ++c)
        score += static_cast<double>(q[c]) * HalfValue(chunk.k[at + c]);
      const double p = std::exp2(score);
      total += p;
      for (size_t c = 0; c < 64; ++c) o[c] += p * HalfValue(chunk.v[at + c]);
    }
    for (int64_t c = 0; c < 64; ++c) {
      const double error =
          static_cast<double>(out[query * 64 + c]) - o[static_cast<size_t>(c)] / total;
      squares += error * error;
    }
  }
  // Values of deviation 1, steps of about 0.02.
  EXPECT_LT(std::sqrt(squares / static_cast<double>(out.size())), 4e-3);
}

TEST(AttentionInt8, TheFirstChunkHasTheBitsOfF16Pages) {
  const Scene s = MakeScene(64, 60, 3, 64);
  for (const CpuOps* ops : MachineOps()) {
    const GuardedFloats out = Whole(*ops, s);
    GuardedFloats expected(out.size());
    AttendArgs args = ArgsFor(s, expected.data());
    args.pool = s.open[0].data();
    ops->attend_f16(args);
    EXPECT_TRUE(out.SameBits(expected)) << ops->name;
  }
}

TEST(AttentionInt8, RowsAloneGiveTheBitsOfASlice) {
  for (const int32_t heads : {1, 3, 8}) {
    const Scene s = MakeScene(262, 150, heads, 32);
    const int64_t width = int64_t{heads} * s.head_dim;
    for (const CpuOps* ops : MachineOps()) {
      const GuardedFloats together = Whole(*ops, s);
      GuardedFloats out(s.rows * width);
      for (int32_t row = 0; row < s.rows; ++row) {
        AttendArgs args = ArgsFor(s, out.data() + row * width);
        args.q += row * width;
        args.rows = 1;
        args.first_position += row;
        args.own += args.first_position / 64 - args.first_own_chunk;
        args.first_own_chunk = args.first_position / 64;
        ops->attend_int8(args);
      }
      EXPECT_TRUE(out.SameBits(together)) << ops->name << " heads " << heads;
    }
  }
}

// Items cut anywhere between groups, folded by merge_partials, give the bits of one item.
TEST(AttentionInt8, SplittingGroupsOverItemsChangesNoBit) {
  for (const int64_t length : {257, 258, 700, 1030}) {
    const Scene s = MakeScene(length, 4, 3, 64);
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
        ops->attend_int8(args);
        args.first_group = cut;
        args.groups = groups - cut;
        ops->attend_int8(args);
        EXPECT_TRUE(partials.GuardsIntact());
        for (int64_t row = 0; row < s.rows; ++row) {
          const int64_t needed = (s.first_position() + row) / 256 + 1;
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

// ---- Values that are not ordinary --------------------------------------------------

void Fill(std::vector<uint16_t>& halves, uint16_t half) {
  std::fill(halves.begin(), halves.end(), half);
}

TEST(AttentionInt8, UnusualPagesGiveTheirSoftmaxOnEveryInstructionSet) {
  using Edit = std::function<void(HalfChunk&)>;
  const std::vector<std::pair<std::string, Edit>> edits = {
      {"zero keys", [](HalfChunk& c) { Fill(c.k, 0x8000); }},
      {"zero values", [](HalfChunk& c) { Fill(c.v, 0x8000); }},
      {"all zero",
       [](HalfChunk& c) {
         Fill(c.k, 0);
         Fill(c.v, 0);
       }},
      {"constant keys", [](HalfChunk& c) { Fill(c.k, F32ToF16(0.75f)); }},
      {"constant channels",
       [](HalfChunk& c) {
         for (size_t i = 0; i < c.k.size(); i += 4) c.k[i] = F32ToF16(-1.5f);
       }},
      {"subnormal",
       [](HalfChunk& c) {
         for (uint16_t& half : c.k) half &= 0x83FF;
         for (uint16_t& half : c.v) half &= 0x83FF;
       }},
      {"huge",
       [](HalfChunk& c) {
         for (uint16_t& half : c.v) half = (half & 0x8000) | 0x7BFF;
         for (size_t i = 0; i < c.k.size(); i += 64) c.k[i] = (c.k[i] & 0x8000) | 0x7BFF;
       }},
      {"one far token",
       [](HalfChunk& c) {
         for (int64_t i = 0; i < c.hd; ++i) {
           c.k[static_cast<size_t>(30 * c.hd + i)] = F32ToF16(200.0f);
         }
       }},
      {"one large value", [](HalfChunk& c) { c.v[41] = F32ToF16(30000.0f); }}};
  for (const auto& [name, edit] : edits) {
    for (const float sharpness : {1.0f, 60.0f}) {  // 60: p all in one token.
      SCOPED_TRACE(name + " times " + std::to_string(sharpness));
      Scene s = MakeScene(200, 3, 3, 64, edit);
      for (float& x : s.q) x *= sharpness;
      const GuardedFloats expected = Whole(*FindCpuOps("portable"), s);
      ASSERT_NO_FATAL_FAILURE(ExpectNear(expected, s));
      for (const CpuOps* ops : MachineOps()) {
        EXPECT_TRUE(Whole(*ops, s).SameBits(expected)) << ops->name;
      }
    }
  }
}

// Rows 64 and 65 read the chunk closed; row 63 reads it open, where an infinite key may
// mean a weight of 0.
TEST(AttentionInt8, ANonFiniteElementOfAClosedChunkShowsInEveryRowThatReadsIt) {
  for (const bool key : {true, false}) {
    for (const uint16_t bad : {uint16_t{0x7E00}, uint16_t{0x7C00}, uint16_t{0xFC00}}) {
      Scene s = MakeScene(66, 4, 3, 64);
      const size_t at = 63 * 64 + 5;  // Of position 63: rows 62 may not notice.
      (key ? s.chunks[0].k : s.chunks[0].v)[at] = bad;
      LayOut(s);
      for (const CpuOps* ops : MachineOps()) {
        const GuardedFloats out = Whole(*ops, s);
        for (int64_t i = 0; i < 3 * 64; ++i) {
          ASSERT_TRUE(std::isfinite(out[i])) << ops->name;
        }
        for (int64_t i = 2 * 3 * 64; i < out.size(); ++i) {
          ASSERT_TRUE(std::isnan(out[i])) << ops->name << " key " << key;
        }
      }
    }
  }
}

TEST(AttentionInt8, ANonFiniteValueShowsAlsoWhereItsWeightIsNone) {
  Scene s = MakeScene(200, 1, 1, 64, [](HalfChunk& c) {
    for (int64_t i = 0; i < c.hd; ++i) c.k[static_cast<size_t>(i)] = 0;
  });
  for (float& x : s.q) x *= 100.0f;
  s.chunks[1].v[7] = 0x7E00;
  LayOut(s);
  for (const CpuOps* ops : MachineOps()) {
    EXPECT_TRUE(std::isnan(Whole(*ops, s)[0])) << ops->name;
  }
}

TEST(AttentionInt8, ANonFiniteQueryShowsInItsOwnOutputAlone) {
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(),
                          std::numeric_limits<float>::infinity()}) {
    Scene s = MakeScene(200, 1, 3, 64);
    const GuardedFloats clean = Whole(*FindCpuOps("portable"), s);
    s.q[64 + 9] = bad;
    for (const CpuOps* ops : MachineOps()) {
      const GuardedFloats out = Whole(*ops, s);
      for (int64_t i = 0; i < 3 * 64; ++i) {
        if (i / 64 == 1) {
          ASSERT_TRUE(std::isnan(out[i])) << ops->name;
        } else {
          ASSERT_EQ(out[i], clean[i]) << ops->name;
        }
      }
    }
  }
}

TEST(AttentionInt8, AnInfiniteStepOrScaleOfAPageIsANaN) {
  const Int8PageFormat at = Int8PageOf(64);
  for (const int64_t field : {at.key_min, at.key_step, at.value_scale}) {
    Scene s = MakeScene(140, 1, 1, 64);
    const uint16_t infinity = 0x7C00;
    std::memcpy(s.Page(0) + field + 2 * 11, &infinity, 2);
    for (const CpuOps* ops : MachineOps()) {
      const GuardedFloats out = Whole(*ops, s);
      for (int64_t i = 0; i < out.size(); ++i) {
        ASSERT_TRUE(std::isnan(out[i])) << ops->name << " field " << field;
      }
    }
  }
}

// Pages come back from elsewhere: whatever they hold, all instruction sets agree.
TEST(AttentionInt8, AnyBytesInAPageGiveTheSameNumbersEverywhere) {
  std::mt19937 random(99);
  for (int round = 0; round < 40; ++round) {
    Scene s = MakeScene(300, 2, 3, 48);
    const Int8PageFormat at = Int8PageOf(48);
    for (size_t i = 0; i < s.pool.size(); ++i) {
      s.pool[i] = static_cast<uint8_t>(random());
      // Most rounds: no f16 of a header is infinite, so that numbers come out.
      const int64_t place = static_cast<int64_t>(i) % at.bytes;
      if (round % 4 != 0 && place >= at.key_min && place % 2 == 1) s.pool[i] &= 0xBF;
    }
    const GuardedFloats expected = Whole(*FindCpuOps("portable"), s);
    for (const CpuOps* ops : MachineOps()) {
      const GuardedFloats out = Whole(*ops, s);
      for (int64_t i = 0; i < out.size(); ++i) {
        ASSERT_TRUE(out[i] == expected[i] ||
                    (std::isnan(out[i]) && std::isnan(expected[i])))
            << ops->name << " round " << round << ": " << out[i] << ", " << expected[i];
      }
    }
  }
}

}  // namespace
}  // namespace renga
