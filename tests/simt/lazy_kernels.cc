#include "tests/simt/lazy_kernels.h"

#include "kernels/cuda/context.h"
#include "tests/simt/simt_ctx.h"

namespace renga::cuda {
namespace {

using test::kLazyAdd;
using test::LazyAddArgs;

// All memory goes through the context, so that what it touches is known to builds without
// hooks too.
template <class Ctx>
void LazyAdd(Ctx& ctx, const LazyAddArgs& args) {
  const int64_t at = 4 * (int64_t{32} * ctx.block_x() + ctx.thread());
  const Vec16 amount = ctx.Load16(args.amount);
  Vec16 sum = ctx.Load16(args.in + at);
  for (uint32_t& word : sum.word) word += amount.word[0] + args.baked;
  ctx.Store16(args.out + at, sum);
}

}  // namespace
}  // namespace renga::cuda

#define RENGA_LAZY_KERNELS(X) X(kLazyAdd, LazyAddArgs, 32, 1, LazyAdd)

RENGA_SIMT_FAMILY(RENGA_LAZY_KERNELS, LazyKernels)
