// ThreadPool: compute workers for parallel regions of a few microseconds each.
//
// A region is `pieces` calls of one function. Each worker owns a contiguous range of
// them, packed with the region's generation into one word: the owner takes pieces from
// the front, others steal from the back, both by compare-and-swap. A region ends when all
// pieces are done; it never waits for a worker that took none. The caller is worker 0.
//
// A piece is only run after a successful compare-and-swap, and a region is only replaced
// after all its pieces are done, so the function that a worker reads after its swap is
// that of the region whose piece it holds, however long it slept in between.
//
// Waiting is a bounded spin (workers about 50 us, the caller 30 us), then a sleep.
//
// Thread rule: one thread calls Run. Inside a region, `Run` must not be called.

#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "backend/solo_rule.h"
#include "base/mutex.h"

namespace renga {

class ThreadPool {
 public:
  static constexpr int kMaxThreads = 256;
  static constexpr int64_t kMaxPieces = (int64_t{1} << 20) - 1;

  // Workers that a setting asks for, the caller's own included; 0: one for each core.
  static int CountFor(int32_t setting);

  // REQUIRES: 1 <= threads <= kMaxThreads, the caller's own included.
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return threads_; }

  // Calls function(piece, worker) once for each piece in [0, pieces), on any worker in
  // any order, and returns when all are done. REQUIRES: pieces <= kMaxPieces.
  template <class Function>
  void Run(int64_t pieces, Function&& function) {
    if (pieces <= 1 || threads_ == 1 || solo_.solo()) {
      for (int64_t piece = 0; piece < pieces; ++piece) function(piece, 0);
      return;
    }
    using Plain = std::remove_reference_t<Function>;
    RunRegion(pieces, &function, [](const void* context, int64_t piece, int worker) {
      (*static_cast<const Plain*>(context))(piece, worker);
    });
  }

  // The first piece of worker `worker`'s own range in a region of `pieces`.
  int64_t RangeBegin(int64_t pieces, int worker) const {
    return pieces * worker / threads_;
  }

  // Around each stretch of compute (a step), for the solo rule.
  void BeginStretch();
  void EndStretch();

 private:
  using Call = void (*)(const void* context, int64_t piece, int worker);

  struct alignas(64) Range {
    std::atomic<uint64_t> word{0};  // generation << 40 | back << 20 | front
  };

  void RunRegion(int64_t pieces, const void* context, Call call);
  void WorkerLoop(int worker);
  // Runs pieces until no range has any left.
  void Drain(int worker);
  bool TakeFront(Range& range, int64_t& piece);
  bool TakeBack(Range& range, int64_t& piece);
  void Execute(int64_t piece, int worker);
  void WakeWorkers();
  void WaitForPieces();
  // Waits for a region other than `seen`; false: the pool ends.
  bool WaitForRegion(uint32_t seen);

  const int threads_;
  std::unique_ptr<Range[]> ranges_;  // [threads_]
  // Of the region in progress; see the top for who may read them when.
  const void* context_ = nullptr;
  Call call_ = nullptr;

  alignas(64) std::atomic<uint32_t> generation_{0};
  alignas(64) std::atomic<int64_t> pieces_left_{0};
  std::atomic<int> sleeping_workers_{0};
  std::atomic<bool> caller_sleeps_{false};
  std::atomic<bool> stop_{false};

  Mutex mutex_;  // Guards nothing but the sleeping: what is waited for is atomic.
  CondVar region_started_;
  CondVar pieces_done_;

  SoloRule solo_;
  TimePoint stretch_begin_{};
  Duration stretch_cpu_{0};
  bool in_stretch_ = false;

  std::vector<std::thread> workers_;
};

}  // namespace renga
