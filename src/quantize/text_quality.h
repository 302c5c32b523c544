// Teacher-forced scores of a model on a text, alone or beside a reference.
//
// The text is cut into windows that know nothing of each other. In each, every position
// but the first few, which have too little before them, predicts the token that follows.
//
// Thread rule: one thread at a time.

#pragma once

#include <cstdint>
#include <string_view>

#include "quantize/model_scorer.h"
#include "quantize/quality.h"
#include "quantize/quantise_file.h"
#include "renga/status.h"

namespace renga {

inline constexpr int32_t kQualityWindow = 512;
// Positions at the begin of a window that are not scored.
inline constexpr int32_t kQualityWarmUp = 32;

struct TextQuality {
  int64_t tokens = 0;  // Of the text.
  int32_t window = 0;
  bool compared = false;
  QualityTotals totals;
};

// `reference` may be nullptr. Windows are as long as the shorter window of the two; each
// begins with the vocabulary's first token, if plain text does there. The scores of a
// slice are computed by `threads` threads.
// INVALID_ARGUMENT: the text is too short, or the two make different tokens of it.
StatusOr<TextQuality> MeasureText(ModelScorer& model, ModelScorer* reference,
                                  std::string_view text, int threads,
                                  const WorkProgress& progress);

// A few thousand tokens of prose, dialogue, lists and code, written for this purpose.
std::string_view SampleText();

}  // namespace renga
