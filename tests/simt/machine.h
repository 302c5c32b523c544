// The machine under RunKernel: threads as fibers, the scheduler of a block, and the
// checks of what its threads do. One per thread of the operating system, used again for
// every launch.
//
// Invariant: at most one fiber runs; `current_` is null while the scheduler does.

#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "kernels/cuda/context.h"
#include "tests/simt/fiber.h"
#include "tests/simt/report_list.h"
#include "tests/simt/shared_memory.h"
#include "tests/simt/simt.h"
#include "tests/simt/simt_memory.h"
#include "tests/simt/touch.h"
#include "tests/simt/trace.h"

namespace renga::test {

// What lanes wait for. All but a Barrier is done when the 32 lanes of the warp are there.
enum class Wait : uint8_t {
  kBarrier,
  kWarpSync,
  kShuffleXor,
  kShuffle,
  kShuffleUp,
  kBallot,
  kLoadMatrix,
  kLoadMatrixTrans,
  kMmaF16,
  kMmaBf16,
};
const char* WaitName(Wait wait);

// Which memory an instruction can reach.
enum class Space : uint8_t { kAny, kGlobal, kShared };

class SimtMachine;

// A CUDA thread.
class SimtThread {
 public:
  enum class State : uint8_t { kReady, kWaits, kExited };
  // A cp.async that has not landed.
  struct Copy {
    char* to = nullptr;
    cuda::Vec16 value{};
    Site site;
  };

  SimtMachine* machine = nullptr;
  int thread = 0;
  int lane = 0;
  int warp = 0;
  State state = State::kReady;

  // While it waits: for what, and where; operands lie on its own stack.
  Wait wait = Wait::kBarrier;
  Site site;
  uint32_t value = 0;
  int argument = 0;
  uint32_t result = 0;
  const char* row = nullptr;
  uint32_t* registers = nullptr;  // [4]
  float* c = nullptr;             // [4]
  const uint32_t* a = nullptr;    // [4]
  const uint32_t* b = nullptr;    // [2]

  Fiber fiber;
  FiberStack stack;
  bool started = false;  // The fiber waits for its next block.
  std::vector<Copy> copies;
  std::vector<size_t> groups;  // How many copies there were at each commit.
  TraceCounter::LaneTrace trace;
  int64_t accesses = 0;  // Since it was resumed.
};

class SimtMachine {
 public:
  // The machine whose fiber runs in this thread; null outside of kernels.
  static SimtMachine* Running() { return running_; }
  // This thread's machine.
  static SimtMachine& Instance();

  SimtRun Run(const EmulatedKernel& kernel, const cuda::LaunchShape& shape,
              const void* args, SimtMemory& memory, const SimtOptions& options);

  // ---- By the running fiber. Those that find something fatal do not return.
  bool in_fiber() const { return current_ != nullptr; }
  SimtThread& current() { return *current_; }
  const int32_t* block() const { return block_; }
  char* Shared(int byte_offset) { return shared_.begin() + byte_offset; }
  void WaitFor(Wait wait, const Site& site);
  void Touches(const Site& site, const void* at, int bytes, Access access, Space space);
  void CopyAsync(const Site& site, void* shared, const void* global, bool whole);
  void CopyCommit();
  void CopyWait(int pending);

 private:
  struct Warp {
    SimtThread* lanes[cuda::kWarp];
    TraceCounter::LaneTrace* traces[cuda::kWarp];
    uint32_t tick = 0;
  };
  struct Chunk {
    SimtBuffer* buffer = nullptr;
    int64_t index = 0;
  };
  // Where an access went. Nowhere: it was fatal.
  enum class Found : uint8_t { kNowhere, kShared, kGlobal, kConstant };

  static void ThreadMain(void* thread);

  // machine.cc: the scheduler.
  void Prepare(int threads);
  std::vector<int64_t> Order(int64_t n);
  void RunBlock(int64_t block);
  void StartBlock(int64_t block);
  bool RunWarp(Warp& warp, const std::vector<int64_t>& lanes);
  bool RunLanes(Warp& warp, const std::vector<int64_t>& lanes);
  void ResolveWarp(Warp& warp);
  void ResolveLoadMatrix(Warp& warp);
  void ReleaseBarrier();
  void ReportLostLanes(const Warp& warp, const SimtThread& waits);
  void Exit(SimtThread& thread);

  // machine_memory.cc: accesses.
  Found Note(SimtThread& thread, const Site& site, const void* at, int bytes,
             Access access, Space space);
  Found NoteShared(SimtThread& thread, const Site& site, const void* at, int bytes,
                   Access access);
  Found NoteGlobal(SimtThread& thread, const Site& site, const void* at, int bytes,
                   Access access);
  void NoteGranule(SimtThread& thread, const Site& site, const SimtBuffer& buffer,
                   GlobalShadow& shadow, Access access);
  const char* GranuleFault(const GlobalShadow& shadow, const Toucher& by, Access access,
                           uint32_t* other) const;
  bool IsAtomicNow(const GlobalShadow& shadow) const;
  void NoteAtomic(GlobalShadow& shadow, const Toucher& by) const;
  Found NoteOutside(SimtThread& thread, const Site& site, const void* at, Access access);
  void NoteChunk(SimtBuffer& buffer, int64_t offset);
  void ReportShared(SimtThread& thread, const Site& site, const SharedFault& fault);
  Toucher ToucherOf(const SimtThread& thread) const;
  bool InArguments(const void* at) const;

  // machine_summary.cc: what a launch did in all.
  void Summarise(SimtRun& run);
  void SummariseChunk(const Chunk& chunk, SimtRun& run) const;

  // Something that ends the launch.
  void Fatal(const SimtThread& thread, const Site& site, const char* what,
             const std::string& detail = {});
  void Report(const SimtThread& thread, const Site& site, const char* what,
              const std::string& detail = {});
  void LeaveIfDead();

  inline static constinit thread_local SimtMachine* running_ = nullptr;

  // Of all launches.
  FiberStacks stacks_;
  std::vector<std::unique_ptr<SimtThread>> threads_;
  SharedMemory shared_;
  uint32_t tick_ = 0;  // The clock of touch.h.
  // Of this launch.
  const EmulatedKernel* kernel_ = nullptr;
  cuda::LaunchShape shape_;
  SimtOptions options_;
  SimtMemory* memory_ = nullptr;
  bool watch_ = false;                // Somebody wants to know of accesses.
  alignas(16) char args_[4096] = {};  // What CUDA allows.
  std::mt19937 random_;
  ReportList reports_;
  std::optional<TraceCounter> counter_;
  int64_t steps_ = 0;
  int64_t products_ = 0;
  bool dead_ = false;
  uint32_t first_stamp_ = 0;
  std::vector<Chunk> chunks_;  // Touched.
  // Of this block.
  int32_t block_[3] = {0, 0, 0};
  uint32_t stamp_ = 0;
  uint32_t barrier_tick_ = 0;
  std::vector<Warp> warps_;
  SimtThread* current_ = nullptr;
};

}  // namespace renga::test
