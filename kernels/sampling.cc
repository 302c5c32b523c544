// See sampling.h. Compiled for baseline x86-64 without contraction, so that every machine
// draws the same token.

#include "kernels/sampling.h"

#include <algorithm>
#include <functional>
#include <numeric>

#include "kernels/block_format.h"

namespace renga {

namespace {

constexpr float kInfinity = __builtin_inff();
constexpr float kLog2E = 1.44269504f;
constexpr float kGreedyTemperature = 1e-6f;
// From depth 31 on a weight is 0; one more than that covers all rounding.
constexpr float kLastDepth = 32.0f;
constexpr int64_t kFewCandidates = 256;  // From here on a histogram pays.

constexpr int64_t Blocks(int64_t n, int64_t block) { return (n + block - 1) / block; }

// The least mass that is at least `share` of `total`, and at least 1.
uint64_t WantedMass(float share, uint64_t total) {
  const double wanted = static_cast<double>(share) * static_cast<double>(total);
  if (!(wanted > 1.0)) return 1;
  const uint64_t whole = static_cast<uint64_t>(wanted);
  return whole + (static_cast<double>(whole) < wanted ? 1 : 0);
}

// bits / 2^64 of `total`, cut to an integer below `total`.
uint64_t ShareOf(uint64_t bits, uint64_t total) {
  __extension__ typedef unsigned __int128 Wide;
  return static_cast<uint64_t>((Wide{bits} * total) >> 64);
}

// The first i whose cumulative weight exceeds `target`; their sum exceeds it.
int64_t Walk(const uint32_t* weights, int64_t n, uint64_t target) {
  int64_t i = 0;
  while (i + 1 < n && weights[i] <= target) target -= weights[i++];
  return i;
}

// A row of logits whose largest is known, and the temperature.
class Row {
 public:
  Row(const CpuOps& ops, const SampleArgs& args, float max, const SampleScratch& scratch)
      : ops_(ops),
        logits_(args.logits),
        vocab_(args.vocab),
        max_(max),
        scale_(kLog2E / args.temperature),
        scratch_(scratch) {}

  // Not above any logit that is at most so deep.
  float AtDepth(float depth) const { return max_ - depth / scale_; }
  float DepthOf(float logit) const { return (max_ - logit) * scale_; }
  float max() const { return max_; }

  // Puts the logits from `threshold` on, and their ids, into the scratch; how many.
  int64_t Gather(float threshold) const {
    return ops_.at_least({.x = logits_,
                          .n = vocab_,
                          .maxima = scratch_.maxima,
                          .threshold = threshold,
                          .ids = scratch_.ids,
                          .values = scratch_.logits});
  }

  // The weights of the first n gathered logits; their sum.
  uint64_t Weigh(int64_t n) const {
    return ops_.sample_weights(scratch_.logits, n, max_, scale_, scratch_.weights);
  }

  // The mass of the row, chunk by chunk in scratch.chunk_mass.
  uint64_t WeighAll() const {
    uint64_t total = 0;
    for (int64_t chunk = 0; chunk < Blocks(vocab_, SampleScratch::kChunk); ++chunk) {
      total += scratch_.chunk_mass[chunk] = WeighChunk(chunk);
    }
    return total;
  }

  // A draw from the whole row.
  int32_t Draw(uint64_t bits) const {
    uint64_t target = ShareOf(bits, WeighAll());
    int64_t chunk = 0;
    while (scratch_.chunk_mass[chunk] <= target) target -= scratch_.chunk_mass[chunk++];
    WeighChunk(chunk);
    return static_cast<int32_t>(chunk * SampleScratch::kChunk +
                                Walk(scratch_.weights, ChunkSize(chunk), target));
  }

 private:
  int64_t ChunkSize(int64_t chunk) const {
    return std::min(SampleScratch::kChunk, vocab_ - chunk * SampleScratch::kChunk);
  }
  uint64_t WeighChunk(int64_t chunk) const {
    return ops_.sample_weights(logits_ + chunk * SampleScratch::kChunk, ChunkSize(chunk),
                               max_, scale_, scratch_.weights);
  }

  const CpuOps& ops_;
  const float* const logits_;  // [vocab]
  const int64_t vocab_;
  const float max_;
  const float scale_;  // log2(e) / temperature
  const SampleScratch& scratch_;
};

// The tokens still in play, in rising order of their ids: the first count_ places of the
// scratch's ids, logits and weights.
class Candidates {
 public:
  Candidates(const Row& row, const SampleScratch& scratch) : row_(row), s_(scratch) {}

  // All logits from `threshold` on.
  void Take(float threshold) {
    threshold_ = threshold;
    count_ = row_.Gather(threshold);
    total_ = row_.Weigh(count_);
  }

  // From the best on, deeper and deeper, until they hold `wanted` of the row's mass...
  void TakeMass(uint64_t wanted) {
    TakeUntil([&] { return total_ >= wanted; });
  }
  // ... or k tokens.
  void TakeCount(int64_t k) {
    TakeUntil([&] { return count_ >= k; });
  }

  // REQUIRES: they hold the k largest logits of the row.
  void KeepTopK(int64_t k) {
    if (k >= count_) return;
    KeyByLogit();
    std::fill_n(s_.weights, count_, 1u);
    total_ = static_cast<uint64_t>(count_);
    KeepHead(static_cast<uint64_t>(k), -row_.max(), -threshold_);
    total_ = row_.Weigh(count_);
  }

  void KeepTypical(float share) {
    double sum = 0.0;
    for (int64_t i = 0; i < count_; ++i) {
      s_.keys[i] = std::min(row_.DepthOf(s_.logits[i]), kLastDepth);
      sum += static_cast<double>(s_.weights[i]) * static_cast<double>(s_.keys[i]);
    }
    const float mean = static_cast<float>(sum / static_cast<double>(total_));
    for (int64_t i = 0; i < count_; ++i) s_.keys[i] = __builtin_fabsf(s_.keys[i] - mean);
    KeepHead(WantedMass(share, total_), 0.0f, kLastDepth);
  }

  // The head in falling order of logits with at least `wanted` mass.
  void KeepTopP(uint64_t wanted) {
    KeyByLogit();
    KeepHead(wanted, -row_.max(), -threshold_);
  }

  void KeepMinP(float share) {
    uint32_t largest = 0;
    for (int64_t i = 0; i < count_; ++i) largest = std::max(largest, s_.weights[i]);
    const uint64_t least = WantedMass(share, largest);
    Compact([&](int64_t i) { return s_.weights[i] >= least; });
  }

  int32_t Draw(uint64_t bits) const {
    return s_.ids[Walk(s_.weights, count_, ShareOf(bits, total_))];
  }

  uint64_t total() const { return total_; }

 private:
  // Places in s_.border, and where they stand in the order.
  struct Border {
    int32_t bin = 0;
    int64_t size = 0;
    uint64_t before = 0;  // Mass of the bins before this one.
  };

  // All tokens that have a weight, if never enough. Small steps: a gather costs as much
  // as the tokens that it finds, and those that are not wanted cost more later.
  template <class Enough>
  void TakeUntil(const Enough& enough) {
    for (float depth = 6.0f; depth < kLastDepth; depth *= 1.3f) {
      Take(row_.AtDepth(depth));
      if (enough()) return;
    }
    Take(row_.AtDepth(kLastDepth));
  }

  void KeyByLogit() {
    for (int64_t i = 0; i < count_; ++i) s_.keys[i] = -s_.logits[i];
  }

  // The order of a head. Places and ids rise together.
  bool Before(int32_t a, int32_t b) const {
    if (s_.keys[a] != s_.keys[b]) return s_.keys[a] < s_.keys[b];
    if (s_.logits[a] != s_.logits[b]) return s_.logits[a] > s_.logits[b];
    return a < b;
  }

  // Keeps the shortest head, in the order of Before, whose weights reach `wanted`. All
  // keys are in [lowest, highest].
  void KeepHead(uint64_t wanted, float lowest, float highest) {
    wanted = std::min(wanted, total_);
    const Border border = FindBorder(wanted, lowest, highest);
    const int32_t last = LastInside(border, wanted);
    // Copied, as Compact moves what stands at `last`.
    const float key = s_.keys[last];
    const float logit = s_.logits[last];
    Compact([&](int64_t i) {
      const int32_t bin = s_.bins[i];
      if (bin != border.bin) return bin < border.bin;
      if (s_.keys[i] != key) return s_.keys[i] < key;
      return s_.logits[i] > logit || (s_.logits[i] == logit && i <= last);
    });
  }

  // Gives every place a bin, rising with its key, and finds the bin where the cumulative
  // mass reaches `wanted`.
  Border FindBorder(uint64_t wanted, float lowest, float highest) {
    const float bins_per_key =
        static_cast<float>(SampleScratch::kBins - 1) / (highest - lowest);
    if (count_ <= kFewCandidates || !(bins_per_key > 0.0f && bins_per_key < kInfinity)) {
      std::fill_n(s_.bins, count_, 0);
      std::iota(s_.border, s_.border + count_, 0);
      return {.bin = 0, .size = count_, .before = 0};
    }
    for (int64_t i = 0; i < count_; ++i) {
      s_.bins[i] = static_cast<int32_t>((s_.keys[i] - lowest) * bins_per_key);
    }
    uint64_t* const bin_mass = s_.bin_mass;
    const uint32_t* const weights = s_.weights;
    std::fill_n(bin_mass, SampleScratch::kBins, uint64_t{0});
    for (int64_t i = 0; i < count_; ++i) bin_mass[s_.bins[i]] += weights[i];
    Border border;
    while (border.bin + 1 < SampleScratch::kBins &&
           border.before + s_.bin_mass[border.bin] < wanted) {
      border.before += s_.bin_mass[border.bin++];
    }
    for (int64_t i = 0; i < count_; ++i) {  // Without a branch: see Compact.
      s_.border[border.size] = static_cast<int32_t>(i);
      border.size += s_.bins[i] == border.bin ? 1 : 0;
    }
    return border;
  }

  // The place in the border's bin at which the cumulative mass reaches `wanted`; the last
  // one if none does.
  int32_t LastInside(const Border& border, uint64_t wanted) {
    const auto before = [this](int32_t a, int32_t b) { return Before(a, b); };
    int32_t* first = s_.border;
    int32_t* end = s_.border + border.size;
    uint64_t mass = border.before;
    while (end - first > 32) {  // Selection by mass: halve what holds the place.
      int32_t* middle = first + (end - first) / 2;
      std::nth_element(first, middle, end, before);
      const uint64_t half = MassOf(first, middle);
      if (mass + half >= wanted) {
        end = middle;
      } else {
        mass += half;
        first = middle;
      }
    }
    std::sort(first, end, before);
    for (; first + 1 < end; ++first) {
      mass += s_.weights[*first];
      if (mass >= wanted) break;
    }
    return *first;
  }

  uint64_t MassOf(const int32_t* first, const int32_t* end) const {
    return std::accumulate(first, end, uint64_t{0}, [this](uint64_t sum, int32_t i) {
      return sum + s_.weights[i];
    });
  }

  // Without a branch on what is kept: that would be mispredicted for every second token.
  template <class Keep>
  void Compact(const Keep& keep) {
    int64_t n = 0;
    uint64_t total = 0;
    for (int64_t i = 0; i < count_; ++i) {
      const uint32_t weight = s_.weights[i];
      const uint32_t kept = keep(i) ? 1 : 0;
      s_.ids[n] = s_.ids[i];
      s_.logits[n] = s_.logits[i];
      s_.weights[n] = weight;
      total += weight * kept;
      n += kept;
    }
    count_ = n;
    total_ = total;
  }

  const Row& row_;
  const SampleScratch& s_;
  float threshold_ = 0.0f;  // No logit is below it.
  int64_t count_ = 0;
  uint64_t total_ = 0;  // Their mass.
};

// A depth that no weight of at least min_p * 2^30 reaches.
float MinPDepth(float min_p) {
  const int32_t exponent = static_cast<int32_t>(FloatBits(min_p) >> 23) - 127;
  return std::min(2.0f - static_cast<float>(exponent), kLastDepth);
}

int32_t SampleFiltered(const CpuOps& ops, const SampleArgs& args, float max,
                       const SampleScratch& scratch) {
  const Row row(ops, args, max, scratch);
  Candidates candidates(row, scratch);
  const bool top_k = args.top_k > 0 && args.top_k < args.vocab;
  const bool typical_p = args.typical_p < 1.0f;
  const bool top_p = args.top_p < 1.0f;
  uint64_t head = 0;  // Of top_p, once known.
  if (top_k) {
    if (args.top_k <= Blocks(args.vocab, kMaxBlock)) {
      candidates.Take(std::max(row.AtDepth(kLastDepth),
                               KthBlockMax(args.vocab, args.top_k, scratch)));
    } else {
      candidates.TakeCount(args.top_k);
    }
    candidates.KeepTopK(args.top_k);
  } else if (top_p && !typical_p) {
    head = WantedMass(args.top_p, row.WeighAll());
    candidates.TakeMass(head);
  } else {
    candidates.Take(row.AtDepth(typical_p ? kLastDepth : MinPDepth(args.min_p)));
  }
  if (typical_p) candidates.KeepTypical(args.typical_p);
  if (top_p) {
    candidates.KeepTopP(head > 0 ? head : WantedMass(args.top_p, candidates.total()));
  }
  if (args.min_p > 0.0f) candidates.KeepMinP(args.min_p);
  return candidates.Draw(RandomBits(args.seed, args.choice, args.token_index));
}

// The smallest id whose logit is `max`.
int32_t FindMax(const SampleArgs& args, float max, const SampleScratch& scratch) {
  int64_t block = 0;
  while (scratch.maxima[block] != max) ++block;
  int64_t id = block * kMaxBlock;
  while (args.logits[id] != max) ++id;
  return static_cast<int32_t>(id);
}

// Cuts pieces off a block of memory, each aligned to 64 bytes.
class Carver {
 public:
  explicit Carver(void* memory) : memory_(static_cast<char*>(memory)) {}
  template <class T>
  void Cut(int64_t count, T*& piece) {
    if (memory_ != nullptr) piece = reinterpret_cast<T*>(memory_ + used_);
    used_ += (static_cast<size_t>(count) * sizeof(T) + 63) / 64 * 64;
  }
  size_t used() const { return used_; }

 private:
  char* const memory_;
  size_t used_ = 0;
};

size_t Carve(void* memory, int64_t vocab, SampleScratch& scratch) {
  Carver carver(memory);
  carver.Cut(Blocks(vocab, kMaxBlock), scratch.maxima);
  carver.Cut(Blocks(vocab, kMaxBlock), scratch.ranked);
  carver.Cut(Blocks(vocab, SampleScratch::kChunk), scratch.chunk_mass);
  carver.Cut(SampleScratch::kBins, scratch.bin_mass);
  carver.Cut(vocab + 16, scratch.ids);
  carver.Cut(vocab + 16, scratch.logits);
  carver.Cut(std::max(vocab, SampleScratch::kChunk), scratch.weights);
  carver.Cut(vocab, scratch.keys);
  carver.Cut(vocab, scratch.bins);
  carver.Cut(vocab, scratch.border);
  return carver.used();
}

}  // namespace

size_t SampleScratchBytes(int64_t vocab) {
  SampleScratch scratch;
  return Carve(nullptr, vocab, scratch);
}

SampleScratch MakeSampleScratch(void* memory, int64_t vocab) {
  SampleScratch scratch;
  Carve(memory, vocab, scratch);
  return scratch;
}

PhiloxBlock Philox4x32(uint64_t key, PhiloxBlock counter) {
  uint32_t key0 = static_cast<uint32_t>(key);
  uint32_t key1 = static_cast<uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = uint64_t{0xD2511F53u} * counter.word[0];
    const uint64_t b = uint64_t{0xCD9E8D57u} * counter.word[2];
    counter = {{static_cast<uint32_t>(b >> 32) ^ counter.word[1] ^ key0,
                static_cast<uint32_t>(b),
                static_cast<uint32_t>(a >> 32) ^ counter.word[3] ^ key1,
                static_cast<uint32_t>(a)}};
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
  return counter;
}

uint64_t RandomBits(uint64_t seed, uint32_t choice, uint32_t token_index) {
  const PhiloxBlock block = Philox4x32(seed, {{choice, token_index, 0, 0}});
  return (uint64_t{block.word[0]} << 32) | block.word[1];
}

float ScanLogits(const CpuOps& ops, const float* logits, int64_t vocab,
                 const SampleScratch& scratch) {
  return ops.block_max(logits, vocab, scratch.maxima);
}

float KthBlockMax(int64_t vocab, int64_t k, const SampleScratch& scratch) {
  const int64_t blocks = Blocks(vocab, kMaxBlock);
  if (k > blocks) return -kInfinity;
  std::copy_n(scratch.maxima, blocks, scratch.ranked);
  float* kth = scratch.ranked + k - 1;
  std::nth_element(scratch.ranked, kth, scratch.ranked + blocks, std::greater<float>());
  return *kth;
}

int32_t SampleToken(const CpuOps& ops, const SampleArgs& args,
                    const SampleScratch& scratch) {
  const float max = ScanLogits(ops, args.logits, args.vocab, scratch);
  if (!(max > -kInfinity)) return -1;
  if (!(args.temperature >= kGreedyTemperature) || args.top_k == 1 ||
      (args.min_p >= 1.0f && !(args.typical_p < 1.0f))) {
    return FindMax(args, max, scratch);
  }
  const bool top_k = args.top_k > 0 && args.top_k < args.vocab;
  if (top_k || args.typical_p < 1.0f || args.top_p < 1.0f || args.min_p > 0.0f) {
    return SampleFiltered(ops, args, max, scratch);
  }
  return Row(ops, args, max, scratch)
      .Draw(RandomBits(args.seed, args.choice, args.token_index));
}

}  // namespace renga
