#include "tests/simt/warp_ops.h"

#include <cstring>

#include "kernels/cuda/words.h"

namespace renga::test {
namespace {

constexpr int kRows = 16;   // Of A and C.
constexpr int kCols = 8;    // Of B and C.
constexpr int kDepth = 16;  // k
constexpr int kMatrix = 8;  // Rows and columns of one of ldmatrix' matrices.
constexpr int kMatrices = 4;

double Element(uint32_t pair, int half, bool bfloat) {
  const uint16_t bits = static_cast<uint16_t>(pair >> (16 * half));
  return double{bfloat ? cuda::BfloatToFloat(bits) : cuda::HalfToFloat(bits)};
}

uint16_t RowElement(const SimtThread& lane, int column) {
  uint16_t value = 0;
  std::memcpy(&value, lane.row + column * 2, sizeof value);
  return value;
}

// The lane whose value `lane` wants; itself where a shift leaves it its own.
int SourceOf(const SimtThread& lane) {
  switch (lane.wait) {
    case Wait::kShuffleXor:
      return lane.lane ^ lane.argument;
    case Wait::kShuffleUp:
      return lane.argument <= lane.lane ? lane.lane - lane.argument : lane.lane;
    default:
      return lane.argument;
  }
}

}  // namespace

const SimtThread* Exchange(SimtThread* const (&lanes)[cuda::kWarp]) {
  const SimtThread* lost = nullptr;
  uint32_t votes = 0;
  for (const SimtThread* lane : lanes) votes |= (lane->value & 1u) << lane->lane;
  for (SimtThread* lane : lanes) {
    if (lane->wait == Wait::kBallot) {
      lane->result = votes;
      continue;
    }
    const int source = SourceOf(*lane);
    if (source < 0 || source >= cuda::kWarp) {
      lost = lane;
      lane->result = lane->value;
    } else {
      lane->result = lanes[source]->value;
    }
  }
  return lost;
}

void LoadMatrices(SimtThread* const (&lanes)[cuda::kWarp], bool trans) {
  for (SimtThread* lane : lanes) {
    const int g = lane->lane / 4;
    const int t = lane->lane % 4;
    for (int i = 0; i < kMatrices; ++i) {
      uint32_t pair = 0;
      for (int e = 0; e < 2; ++e) {
        const int row = trans ? 2 * t + e : g;
        const int column = trans ? g : 2 * t + e;
        const uint32_t bits = RowElement(*lanes[kMatrix * i + row], column);
        pair |= bits << (16 * e);
      }
      lane->registers[i] = pair;
    }
  }
}

void Multiply(SimtThread* const (&lanes)[cuda::kWarp], bool bfloat) {
  double a[kRows][kDepth];
  double b[kDepth][kCols];
  for (const SimtThread* lane : lanes) {
    const int g = lane->lane / 4;
    const int t = lane->lane % 4;
    for (int e = 0; e < 2; ++e) {
      for (int i = 0; i < 4; ++i) {
        a[g + i % 2 * 8][2 * t + e + i / 2 * 8] = Element(lane->a[i], e, bfloat);
      }
      for (int i = 0; i < 2; ++i) {
        b[2 * t + e + i * 8][g] = Element(lane->b[i], e, bfloat);
      }
    }
  }
  for (SimtThread* lane : lanes) {
    const int g = lane->lane / 4;
    const int t = lane->lane % 4;
    for (int i = 0; i < 4; ++i) {
      const int row = g + i / 2 * 8;
      const int column = 2 * t + i % 2;
      double sum = double{lane->c[i]};
      for (int k = 0; k < kDepth; ++k) sum += a[row][k] * b[k][column];
      lane->c[i] = static_cast<float>(sum);
    }
  }
}

}  // namespace renga::test
