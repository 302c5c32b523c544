// See thread_pool.h.

#include "backend/thread_pool.h"

#include <time.h>

#include <algorithm>

#include "base/check.h"

namespace renga {

namespace {

constexpr auto kWorkerSpin = std::chrono::microseconds(50);
constexpr auto kCallerSpin = std::chrono::microseconds(30);
constexpr uint64_t kIndexMask = (uint64_t{1} << 20) - 1;
constexpr int kPausesPerClockRead = 32;

uint64_t Pack(uint64_t generation, int64_t front, int64_t back) {
  return generation << 40 | static_cast<uint64_t>(back) << 20 |
         static_cast<uint64_t>(front);
}
int64_t Front(uint64_t word) { return static_cast<int64_t>(word & kIndexMask); }
int64_t Back(uint64_t word) { return static_cast<int64_t>(word >> 20 & kIndexMask); }

void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

Duration ThreadCpuTime() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
}

// Spins until `done()` or for about `limit`; says whether `done()`.
template <class Done>
bool SpinUntil(Duration limit, const Done& done) {
  if (done()) return true;
  const TimePoint end = std::chrono::steady_clock::now() + limit;
  do {
    for (int i = 0; i < kPausesPerClockRead; ++i) {
      if (done()) return true;
      Pause();
    }
  } while (std::chrono::steady_clock::now() < end);
  return done();
}

}  // namespace

int ThreadPool::CountFor(int32_t setting) {
  const int cores = static_cast<int>(std::thread::hardware_concurrency());
  return std::clamp(setting > 0 ? setting : cores, 1, kMaxThreads);
}

ThreadPool::ThreadPool(int threads)
    : threads_(threads),
      ranges_(std::make_unique<Range[]>(static_cast<size_t>(threads))) {
  RENGA_CHECK(threads >= 1 && threads <= kMaxThreads);
  workers_.reserve(static_cast<size_t>(threads - 1));
  for (int worker = 1; worker < threads; ++worker) {
    workers_.emplace_back([this, worker] { WorkerLoop(worker); });
  }
}

ThreadPool::~ThreadPool() {
  stop_.store(true, std::memory_order_seq_cst);
  {
    MutexLock lock(mutex_);
    region_started_.NotifyAll();
  }
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::RunRegion(int64_t pieces, const void* context, Call call) {
  RENGA_CHECK(pieces <= kMaxPieces);
  context_ = context;
  call_ = call;
  pieces_left_.store(pieces, std::memory_order_relaxed);
  const uint32_t generation = generation_.load(std::memory_order_relaxed) + 1;
  for (int worker = 0; worker < threads_; ++worker) {
    ranges_[static_cast<size_t>(worker)].word.store(
        Pack(generation, RangeBegin(pieces, worker), RangeBegin(pieces, worker + 1)),
        std::memory_order_release);
  }
  // seq_cst with sleeping_workers_: either the sleeper sees the new generation or we see
  // the sleeper.
  generation_.store(generation, std::memory_order_seq_cst);
  if (sleeping_workers_.load(std::memory_order_seq_cst) > 0) WakeWorkers();
  Drain(0);
  WaitForPieces();
}

void ThreadPool::WakeWorkers() {
  MutexLock lock(mutex_);
  region_started_.NotifyAll();
}

void ThreadPool::Drain(int worker) {
  int64_t piece = 0;
  while (TakeFront(ranges_[static_cast<size_t>(worker)], piece)) Execute(piece, worker);
  for (int offset = 1; offset < threads_; ++offset) {
    Range& victim = ranges_[static_cast<size_t>((worker + offset) % threads_)];
    while (TakeBack(victim, piece)) Execute(piece, worker);
  }
}

bool ThreadPool::TakeFront(Range& range, int64_t& piece) {
  uint64_t word = range.word.load(std::memory_order_acquire);
  while (Front(word) < Back(word)) {
    if (range.word.compare_exchange_weak(word, word + 1, std::memory_order_acq_rel,
                                         std::memory_order_acquire)) {
      piece = Front(word);
      return true;
    }
  }
  return false;
}

bool ThreadPool::TakeBack(Range& range, int64_t& piece) {
  uint64_t word = range.word.load(std::memory_order_acquire);
  while (Front(word) < Back(word)) {
    if (range.word.compare_exchange_weak(word, word - (uint64_t{1} << 20),
                                         std::memory_order_acq_rel,
                                         std::memory_order_acquire)) {
      piece = Back(word) - 1;
      return true;
    }
  }
  return false;
}

void ThreadPool::Execute(int64_t piece, int worker) {
  call_(context_, piece, worker);
  // seq_cst with caller_sleeps_: either the caller sees the last piece done or we see it
  // sleep.
  if (pieces_left_.fetch_sub(1, std::memory_order_seq_cst) != 1 || worker == 0) return;
  if (caller_sleeps_.load(std::memory_order_seq_cst)) {
    MutexLock lock(mutex_);
    pieces_done_.NotifyOne();
  }
}

void ThreadPool::WaitForPieces() {
  const auto done = [this] { return pieces_left_.load(std::memory_order_acquire) == 0; };
  if (SpinUntil(kCallerSpin, done)) return;
  MutexLock lock(mutex_);
  caller_sleeps_.store(true, std::memory_order_seq_cst);
  while (pieces_left_.load(std::memory_order_seq_cst) != 0) pieces_done_.Wait(mutex_);
  caller_sleeps_.store(false, std::memory_order_relaxed);
}

bool ThreadPool::WaitForRegion(uint32_t seen) {
  const auto changed = [this, seen] {
    return generation_.load(std::memory_order_acquire) != seen ||
           stop_.load(std::memory_order_relaxed);
  };
  if (!SpinUntil(kWorkerSpin, changed)) {
    MutexLock lock(mutex_);
    sleeping_workers_.fetch_add(1, std::memory_order_seq_cst);
    while (generation_.load(std::memory_order_seq_cst) == seen &&
           !stop_.load(std::memory_order_seq_cst)) {
      region_started_.Wait(mutex_);
    }
    sleeping_workers_.fetch_sub(1, std::memory_order_relaxed);
  }
  return !stop_.load(std::memory_order_relaxed);
}

void ThreadPool::WorkerLoop(int worker) {
  uint32_t seen = 0;
  while (WaitForRegion(seen)) {
    seen = generation_.load(std::memory_order_acquire);
    Drain(worker);
  }
}

void ThreadPool::BeginStretch() {
  if (threads_ == 1) return;
  in_stretch_ = true;
  stretch_begin_ = std::chrono::steady_clock::now();
  stretch_cpu_ = ThreadCpuTime();
}

void ThreadPool::EndStretch() {
  if (!in_stretch_) return;
  in_stretch_ = false;
  const TimePoint now = std::chrono::steady_clock::now();
  solo_.Add(now - stretch_begin_, ThreadCpuTime() - stretch_cpu_, now);
}

}  // namespace renga
