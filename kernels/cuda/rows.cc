// See rows.h: with which shape its kernels are launched.

#include "kernels/cuda/rows.h"

#include "kernels/cuda/rows_shape.h"

namespace renga::cuda {

KernelLaunch RmsNormLaunch(const RmsNormArgs& args, int32_t most_rows) {
  const KernelId kernel = args.n <= 1024   ? kRmsNorm1024
                          : args.n <= 4096 ? kRmsNorm4096
                                           : kRmsNorm16384;
  return {.kernel = kernel,
          .shape = {.grid_x = most_rows,
                    .threads = kRowThreads,
                    .shared_bytes = kRowThreads / kWarp * 4}};
}

KernelLaunch SwiGluLaunch(const SwiGluArgs& args, int32_t most_rows) {
  return {.kernel = kSwiGlu,
          .shape = {.grid_x = most_rows,
                    .grid_y = DivideUp(args.ffn, kRowThreads * 4),
                    .threads = kRowThreads}};
}

KernelLaunch RopeAppendLaunch(const RopeAppendArgs& args, int32_t most_rows) {
  const int32_t heads = args.heads + 2 * args.kv_heads;
  return {.kernel = args.element == PageElement::kF16 ? kRopeAppendF16 : kRopeAppendBf16,
          .shape = {.grid_x = most_rows,
                    .grid_y = DivideUp(heads, kRopeThreads / kWarp),
                    .threads = kRopeThreads}};
}

KernelLaunch KvCloseLaunch(const KvCloseArgs& args, int32_t most_items) {
  return {.kernel = kKvClose,
          .shape = {.grid_x = most_items,
                    .grid_y = args.kv_heads,
                    .threads = kCloseThreads,
                    .shared_bytes = CloseSharedBytes(args.head_dim)}};
}

KernelLaunch KvCopyLaunch(const KvCopyArgs& args, int32_t most_items) {
  return {.kernel = kKvCopy,
          .shape = {.grid_x = most_items,
                    .grid_y = args.layers * args.kv_heads,
                    .threads = kCopyThreads}};
}

KernelLaunch ChunkPoolLaunch(const ChunkPoolArgs& args) {
  return {.kernel = kChunkPool,
          .shape = {.grid_x = args.batch_heads * DivideUp(args.n, kChunkTokens),
                    .threads = kPoolThreads,
                    .shared_bytes = PoolSharedBytes(args.head_dim)}};
}

}  // namespace renga::cuda
