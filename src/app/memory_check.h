// MemoryCheck: looks at the process's memory every so often, shows it as metrics, and
// says when some of it seems to leak. Where a GPU computes, it shows its figures too.
//
// A look reads the ledger's live bytes and buffers by purpose, the live bytes of the C++
// heap, and the resident memory of the process. One LeakDetector per row judges them at
// equal load. Before it does, what grows by design is taken off:
//   * the heap without what the ledger explains of it (requests, the prefix cache);
//   * resident memory without the heap and without the pages of the KV pool that were
//     ever in use, the open ones among them, which are touched as they are needed;
//   * the prefix cache's bookkeeping only compares while the pool does not fill further.
// Each change of a verdict is one line in the log.
//
// Thread rule: Start makes one own thread, which the destructor ends; every other method
// may be called from any thread.

#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <thread>

#include "app/leak_detector.h"
#include "base/memory_ledger.h"
#include "base/mutex.h"
#include "batching/engine_snapshot.h"
#include "metrics/server_metrics.h"
#include "renga/clock.h"
#include "renga/gpu_figures.h"
#include "renga/server_control.h"

namespace renga {

// What the system says; 0 where it does not.
struct SystemMemory {
  int64_t heap_bytes = 0;  // Live, of malloc.
  int64_t resident_bytes = 0;
};
SystemMemory ReadSystemMemory();

class MemoryCheck {
 public:
  // All of it outlives the check.
  struct Parts {
    const MemoryLedger& ledger;
    const SnapshotBoard& board;
    ServerMetrics& metrics;
    const Clock& clock;
    int64_t kv_page_bytes = 0;
    int64_t kv_open_page_bytes = 0;
    bool kv_on_gpu = false;  // No page is resident memory of the process.
    std::function<SystemMemory()> system = ReadSystemMemory;
    std::function<GpuFigures()> gpu{};  // Empty: none computes.
  };

  explicit MemoryCheck(Parts parts);
  ~MemoryCheck();

  // From now on a look every `interval`.
  void Start(Duration interval);
  // One look, now.
  void Look() RENGA_EXCLUDES(mutex_);
  // The figures of this moment, with the verdicts of the last look.
  MemoryReport Report() RENGA_EXCLUDES(mutex_);

 private:
  using Accounts = std::array<MemoryLedger::Account, kMemoryRows>;

  Accounts Read() const;
  // Row by row what the detectors are shown.
  std::array<int64_t, kMemoryRows> Unexplained(const Accounts& live) const
      RENGA_REQUIRES(mutex_);
  void Judge(size_t row, const LeakDetector::Load& load, int64_t bytes, int64_t live)
      RENGA_REQUIRES(mutex_);
  void Run(Duration interval) RENGA_EXCLUDES(mutex_);

  const Parts parts_;
  Mutex mutex_;
  CondVar changed_;
  bool ending_ RENGA_GUARDED_BY(mutex_) = false;
  std::array<LeakDetector, kMemoryRows> detectors_ RENGA_GUARDED_BY(mutex_);
  int64_t most_pages_ RENGA_GUARDED_BY(mutex_) = 0;  // Ever in use at a look.
  int64_t most_open_pages_ RENGA_GUARDED_BY(mutex_) = 0;
  std::thread thread_;
};

}  // namespace renga
