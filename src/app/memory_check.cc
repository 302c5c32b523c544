#include "app/memory_check.h"

#include <malloc.h>

#include <algorithm>
#include <string>
#include <utility>

#include "base/log.h"
#include "metrics/process_stats.h"
#include "renga/backend.h"

namespace renga {
namespace {

constexpr int64_t kKiB = 1 << 10;
constexpr int64_t kMiB = 1 << 20;

// The ledger is exact and what it knows is fixed after the start or returns to nothing
// when idle. The heap has caches and tables that grow to their size at first use, and
// resident memory moves with the allocator's mood.
constexpr LeakDetector::Options kLedgerOptions = {
    .tolerance_bytes = 16 * kKiB, .step_bytes = 64 * kKiB, .first_scale = 0};
constexpr LeakDetector::Options kHeapOptions = {
    .tolerance_bytes = kMiB, .step_bytes = 256 * kMiB, .first_scale = 1};
constexpr LeakDetector::Options kProcessOptions = {
    .tolerance_bytes = 32 * kMiB, .step_bytes = 0, .first_scale = 1};

template <size_t... kRow>
std::array<LeakDetector, sizeof...(kRow)> MakeDetectors(std::index_sequence<kRow...>) {
  return {LeakDetector(kRow == kHeapRow      ? kHeapOptions
                       : kRow == kProcessRow ? kProcessOptions
                                             : kLedgerOptions)...};
}

constexpr size_t RowOf(MemoryPurpose purpose) { return static_cast<size_t>(purpose); }

// Grows with everything that a request's memory depends on.
int64_t WorkOf(const EngineSnapshot& engine) {
  const int64_t used = engine.pages_total - engine.pages_free - engine.pages_cached;
  return engine.running + engine.waiting + engine.waiting_tokens / kPageTokens +
         std::max<int64_t>(used, 0) + engine.request_bytes / kKiB;
}

}  // namespace

SystemMemory ReadSystemMemory() {
  const struct mallinfo2 heap = mallinfo2();
  return {.heap_bytes = static_cast<int64_t>(heap.uordblks + heap.hblkhd),
          .resident_bytes = static_cast<int64_t>(ReadProcessStats().resident_bytes)};
}

MemoryCheck::MemoryCheck(Parts parts)
    : parts_(std::move(parts)),
      detectors_(MakeDetectors(std::make_index_sequence<kMemoryRows>())) {}

MemoryCheck::~MemoryCheck() {
  {
    MutexLock lock(mutex_);
    ending_ = true;
    changed_.NotifyAll();
  }
  if (thread_.joinable()) thread_.join();
}

void MemoryCheck::Start(Duration interval) {
  thread_ = std::thread([this, interval] { Run(interval); });
}

void MemoryCheck::Run(Duration interval) {
  for (;;) {
    Look();
    MutexLock lock(mutex_);
    const TimePoint until = std::chrono::steady_clock::now() + interval;
    while (!ending_) {
      if (!changed_.WaitUntil(mutex_, until)) break;
    }
    if (ending_) return;
  }
}

MemoryCheck::Accounts MemoryCheck::Read() const {
  Accounts live{};
  for (size_t row = 0; row < kMemoryPurposes; ++row) {
    live[row] = parts_.ledger.Read(static_cast<MemoryPurpose>(row));
  }
  const SystemMemory system = parts_.system();
  live[kHeapRow].bytes = system.heap_bytes;
  live[kProcessRow].bytes = system.resident_bytes;
  return live;
}

std::array<int64_t, kMemoryRows> MemoryCheck::Unexplained(const Accounts& live) const {
  std::array<int64_t, kMemoryRows> bytes{};
  for (size_t row = 0; row < kMemoryRows; ++row) bytes[row] = live[row].bytes;
  bytes[kHeapRow] -= live[RowOf(MemoryPurpose::kRequests)].bytes +
                     live[RowOf(MemoryPurpose::kPrefixCache)].bytes;
  bytes[kProcessRow] -= live[kHeapRow].bytes;
  if (!parts_.kv_on_gpu) {
    bytes[kProcessRow] -=
        most_pages_ * parts_.kv_page_bytes + most_open_pages_ * parts_.kv_open_page_bytes;
  }
  return bytes;
}

void MemoryCheck::Look() {
  const EngineSnapshot engine = parts_.board.Read();
  if (parts_.gpu) parts_.metrics.SetGpu(parts_.gpu());
  const Accounts live = Read();
  const LeakDetector::Load load = {.requests = parts_.metrics.requests(),
                                   .work = WorkOf(engine)};
  MutexLock lock(mutex_);
  const int64_t pages = engine.pages_total - engine.pages_free;
  if (pages > most_pages_) {
    most_pages_ = pages;
    detectors_[RowOf(MemoryPurpose::kPrefixCache)].Restart();
  }
  // A sequence that runs holds one at most, and there are no more than places.
  most_open_pages_ =
      std::max(most_open_pages_, std::min(engine.running, engine.max_sequences));
  const std::array<int64_t, kMemoryRows> bytes = Unexplained(live);
  for (size_t row = 0; row < kMemoryRows; ++row) {
    Judge(row, load, bytes[row], live[row].bytes);
    parts_.metrics.SetMemory(row, live[row], detectors_[row].verdict().suspected);
  }
}

void MemoryCheck::Judge(size_t row, const LeakDetector::Load& load, int64_t bytes,
                        int64_t live) {
  LeakDetector& detector = detectors_[row];
  const bool before = detector.verdict().suspected;
  detector.Add(parts_.clock.Now(), load, bytes);
  const LeakDetector::Verdict& verdict = detector.verdict();
  if (verdict.suspected == before) return;
  if (verdict.suspected) {
    LogWarn("memory_leak_suspected",
            {{"purpose", MemoryRowName(row)},
             {"bytes", live},
             {"bytes_per_hour", static_cast<int64_t>(verdict.bytes_per_hour)},
             {"requests", load.requests}});
  } else {
    LogInfo("memory_leak_not_seen_any_more",
            {{"purpose", MemoryRowName(row)}, {"bytes", live}});
  }
}

MemoryReport MemoryCheck::Report() {
  const EngineSnapshot engine = parts_.board.Read();
  const Accounts live = Read();
  MemoryReport report;
  report.kv_pages_total = engine.pages_total;
  report.kv_pages_used = engine.pages_total - engine.pages_free - engine.pages_cached;
  report.kv_pages_cached = engine.pages_cached;
  report.kv_page_bytes = parts_.kv_page_bytes;
  MutexLock lock(mutex_);
  for (size_t row = 0; row < kMemoryRows; ++row) {
    const LeakDetector::Verdict& verdict = detectors_[row].verdict();
    report.rows.push_back({.purpose = std::string(MemoryRowName(row)),
                           .bytes = live[row].bytes,
                           .buffers = live[row].buffers,
                           .bytes_per_hour = static_cast<int64_t>(verdict.bytes_per_hour),
                           .leak_suspected = verdict.suspected});
  }
  return report;
}

}  // namespace renga
