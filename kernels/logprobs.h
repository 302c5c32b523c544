// Log-probabilities of one row of logits: log softmax over the whole vocabulary, natural
// logarithm, the same bits on every machine.
//
//   logprob(i) = float((logit(i) - max) - ln(S)),  S = sum over j of exp(logit(j) - max)
//
// S: exp as the op `exp_sum` defines it (kernels/ops.h), 16 partial sums in double
// precision. ln: m = S / 2^e in [sqrt(1/2), sqrt(2)), s = (m - 1) / (m + 1), ln(S) =
// e ln(2) + 2 (s + s^3 / 3 + ... + s^19 / 19), in double precision without fma and
// without the C library. Off from the exact value by less than 1e-6, and by the rounding
// to float.

#pragma once

#include <stdint.h>

#include "kernels/ops.h"
#include "kernels/sampling.h"

namespace renga {

struct ScoredToken {
  int32_t token = 0;
  float logprob = 0.0f;
};

struct LogprobArgs {
  const float* logits = nullptr;  // [vocab]
  int64_t vocab = 0;
  int32_t token = 0;           // Whose log-probability is wanted.
  int32_t top = 0;             // How many of the best are wanted.
  ScoredToken* out = nullptr;  // [top]
};

struct LogprobResult {
  bool finite = false;  // False: a NaN or +inf among the logits, or no finite one.
  float logprob = 0.0f;
  int32_t top = 0;  // How many of the best there are: fewer only if vocab is smaller.
};

// The log-probability of a token, and the best ones, best first (ties: smaller ids
// first).
LogprobResult TokenLogprobs(const CpuOps& ops, const LogprobArgs& args,
                            const SampleScratch& scratch);

// ln(x) as above. REQUIRES: x is a positive normal number.
double NaturalLog(double x);

}  // namespace renga
