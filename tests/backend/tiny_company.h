// Sequences of a tiny model alone and in company: what a backend must give the same bits
// for.

#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <vector>

#include "tests/backend/tiny_model.h"

namespace renga {

// Tensor types of a tiny model's matrices (MakeModel): all of one, or mixed.
inline const std::vector<std::vector<TensorType>> kTypeMixes = {
    {TensorType::kF32},
    {TensorType::kF16},
    {TensorType::kQ8_0},
    {TensorType::kQ4_1},
    // q, k and v of one stack differ, as do gate and up.
    {TensorType::kQ8_0, TensorType::kQ4_1, TensorType::kF16, TensorType::kF32,
     TensorType::kQ4_1, TensorType::kF32, TensorType::kQ8_0, TensorType::kQ4_1}};

// Lengths of a mixed batch; two of them cross a tree group.
inline constexpr int32_t kLengths[] = {1, 5, 64, 65, 130, 257, 300};

// Every sequence prefilled alone in one step on a runner of its own, then one token: the
// logits of both.
template <class MakeRunner>
std::vector<std::vector<float>> TinyAlone(const MakeRunner& make_runner) {
  std::vector<std::vector<float>> all;
  for (size_t i = 0; i < std::size(kLengths); ++i) {
    TinyRunner runner = make_runner();
    TinySequence s =
        MakeSequence(kLengths[i] + 1, static_cast<uint32_t>(i), runner.free_pages);
    all.push_back(runner.Step({&s}, {kLengths[i]})[0]);
    all.push_back(runner.Step({&s}, {1})[0]);
  }
  return all;
}

// The same in one batch, prefilled in slices of `slice`, then one token for all.
inline std::vector<std::vector<float>> TinyTogether(TinyRunner& runner, int32_t slice,
                                                    int32_t group_split) {
  std::vector<TinySequence> sequences;
  for (size_t i = 0; i < std::size(kLengths); ++i) {
    sequences.push_back(
        MakeSequence(kLengths[i] + 1, static_cast<uint32_t>(i), runner.free_pages));
  }
  std::vector<std::vector<float>> all(2 * std::size(kLengths));
  for (bool more = true; more;) {
    std::vector<TinySequence*> active;
    std::vector<int32_t> counts;
    std::vector<size_t> places;
    int32_t budget = 690;
    for (size_t i = 0; i < sequences.size() && budget > 0; ++i) {
      const int32_t left = kLengths[i] - sequences[i].done;
      if (left <= 0) continue;
      active.push_back(&sequences[i]);
      counts.push_back(std::min({left, slice, budget}));
      budget -= counts.back();
      places.push_back(i);
    }
    more = !active.empty();
    if (!more) break;
    const auto logits = runner.Step(active, counts, group_split);
    for (size_t i = 0; i < active.size(); ++i) all[2 * places[i]] = logits[i];
  }
  std::vector<TinySequence*> active;
  for (TinySequence& s : sequences) active.push_back(&s);
  const auto logits =
      runner.Step(active, std::vector<int32_t>(active.size(), 1), group_split);
  for (size_t i = 0; i < active.size(); ++i) all[2 * i + 1] = logits[i];
  return all;
}

}  // namespace renga
