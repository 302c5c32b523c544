#include "tests/simt/machine.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <numeric>
#include <utility>

#include "base/check.h"
#include "tests/simt/simt_ctx.h"
#include "tests/simt/warp_ops.h"

namespace renga::test {
namespace {

// One chance in so many that a warp lets others go first though it could go on.
constexpr uint32_t kYieldOneIn = 4;

std::string Hex(uint32_t lanes) {
  char text[9];
  std::snprintf(text, sizeof text, "%08x", lanes);
  return text;
}

}  // namespace

const char* WaitName(Wait wait) {
  switch (wait) {
    case Wait::kBarrier:
      return "Barrier";
    case Wait::kWarpSync:
      return "WarpSync";
    case Wait::kShuffleXor:
      return "ShuffleXor";
    case Wait::kShuffle:
      return "Shuffle";
    case Wait::kShuffleUp:
      return "ShuffleUp";
    case Wait::kBallot:
      return "Ballot";
    case Wait::kLoadMatrix:
      return "LoadMatrix4";
    case Wait::kLoadMatrixTrans:
      return "LoadMatrix4Trans";
    case Wait::kMmaF16:
      return "MmaF16";
    case Wait::kMmaBf16:
      return "MmaBf16";
  }
  return "";
}

SimtMachine& SimtMachine::Instance() {
  thread_local SimtMachine machine;
  return machine;
}

SimtRun SimtMachine::Run(const EmulatedKernel& kernel, const cuda::LaunchShape& shape,
                         const void* args, SimtMemory& memory,
                         const SimtOptions& options) {
  RENGA_CHECK(running_ == nullptr);
  RENGA_CHECK(kernel.args_bytes <= static_cast<int32_t>(sizeof args_));
  kernel_ = &kernel;
  shape_ = shape;
  options_ = options;
  memory_ = &memory;
  watch_ = options.checks || options.counters || options.ranges;
  std::memcpy(args_, args, static_cast<size_t>(kernel.args_bytes));
  random_.seed(options.seed);
  counter_.emplace(memory);
  steps_ = 0;
  products_ = 0;
  dead_ = false;
  chunks_.clear();
  Prepare(shape.threads);
  const int64_t blocks = int64_t{shape.grid_x} * shape.grid_y * shape.grid_z;
  first_stamp_ = memory.BeginLaunch(blocks);

  running_ = this;
  for (const int64_t block : Order(blocks)) {
    RunBlock(block);
    if (dead_) break;
  }
  running_ = nullptr;

  SimtRun run;
  Summarise(run);
  run.reports = reports_.Take();
  return run;
}

void SimtMachine::Prepare(int threads) {
  while (static_cast<int>(threads_.size()) < threads) {
    const int index = static_cast<int>(threads_.size());
    auto thread = std::make_unique<SimtThread>();
    thread->machine = this;
    thread->thread = index;
    thread->lane = index % cuda::kWarp;
    thread->warp = index / cuda::kWarp;
    thread->stack = stacks_.At(index);
    threads_.push_back(std::move(thread));
  }
  warps_.assign(static_cast<size_t>(threads / cuda::kWarp), {});
  for (int i = 0; i < threads; ++i) {
    SimtThread& thread = *threads_[static_cast<size_t>(i)];
    Warp& warp = warps_[static_cast<size_t>(thread.warp)];
    warp.lanes[thread.lane] = &thread;
    warp.traces[thread.lane] = &thread.trace;
  }
}

std::vector<int64_t> SimtMachine::Order(int64_t n) {
  std::vector<int64_t> order(static_cast<size_t>(n));
  std::iota(order.begin(), order.end(), int64_t{0});
  if (options_.seed != 0) std::shuffle(order.begin(), order.end(), random_);
  return order;
}

void SimtMachine::ThreadMain(void* thread) {
  SimtThread& self = *static_cast<SimtThread*>(thread);
  for (;;) {
    SimtCtx ctx(&self);
    self.machine->kernel_->body(ctx, self.machine->args_);
    self.machine->Exit(self);
    self.started = true;
    self.fiber.Suspend();
  }
}

void SimtMachine::StartBlock(int64_t block) {
  block_[0] = static_cast<int32_t>(block % shape_.grid_x);
  block_[1] = static_cast<int32_t>(block / shape_.grid_x % shape_.grid_y);
  block_[2] = static_cast<int32_t>(block / shape_.grid_x / shape_.grid_y);
  stamp_ = first_stamp_ + 1 + static_cast<uint32_t>(block);
  barrier_tick_ = ++tick_;
  RENGA_CHECK(tick_ != UINT32_MAX);
  shared_.Start(shape_.shared_bytes, options_.single_bytes, barrier_tick_);
  for (Warp& warp : warps_) {
    warp.tick = barrier_tick_;
    for (SimtThread* lane : warp.lanes) {
      lane->state = SimtThread::State::kReady;
      lane->copies.clear();
      lane->groups.clear();
      lane->trace.clear();
      if (!lane->started) lane->fiber.Start(lane->stack, &ThreadMain, lane);
      lane->started = false;
    }
  }
}

void SimtMachine::RunBlock(int64_t block) {
  StartBlock(block);
  const std::vector<int64_t> warps = Order(static_cast<int64_t>(warps_.size()));
  const std::vector<int64_t> lanes = Order(cuda::kWarp);
  for (;;) {
    bool moved = false;
    for (const int64_t warp : warps) {
      moved |= RunWarp(warps_[static_cast<size_t>(warp)], lanes);
      if (dead_) return;
    }
    if (moved) continue;
    const auto exited = [](const Warp& warp) {
      return warp.lanes[0]->state == SimtThread::State::kExited;
    };
    // A warp's lanes are all at a Barrier or gone, or it would have been reported.
    if (std::all_of(warps_.begin(), warps_.end(), exited)) return;
    ReleaseBarrier();
    if (dead_) return;
  }
}

// Whether some lane ran.
bool SimtMachine::RunWarp(Warp& warp, const std::vector<int64_t>& lanes) {
  bool moved = false;
  while (RunLanes(warp, lanes)) {
    if (dead_) return true;
    moved = true;
    if (options_.counters) counter_->Flush(warp.traces);
    ResolveWarp(warp);
    if (dead_) return true;
    if (options_.seed != 0 && random_() % kYieldOneIn == 0) break;
  }
  return moved;
}

bool SimtMachine::RunLanes(Warp& warp, const std::vector<int64_t>& lanes) {
  bool moved = false;
  for (const int64_t index : lanes) {
    SimtThread& lane = *warp.lanes[index];
    if (lane.state != SimtThread::State::kReady) continue;
    moved = true;
    if (++steps_ > options_.most_steps) {
      Fatal(lane, lane.site, "the launch does not end",
            "steps " + std::to_string(steps_));
      return true;
    }
    lane.accesses = 0;
    current_ = &lane;
    lane.fiber.Resume();
    current_ = nullptr;
    if (dead_) return true;
  }
  return moved;
}

// Does what the warp waits for, if its lanes are all there. All have stopped.
void SimtMachine::ResolveWarp(Warp& warp) {
  const SimtThread* waits = nullptr;
  bool together = true;
  for (const SimtThread* lane : warp.lanes) {
    if (lane->state != SimtThread::State::kWaits) continue;
    if (lane->wait != Wait::kBarrier) waits = lane;
  }
  if (waits == nullptr) return;
  for (const SimtThread* lane : warp.lanes) {
    together = together && lane->state == SimtThread::State::kWaits &&
               lane->wait == waits->wait && lane->site == waits->site;
  }
  if (!together) return ReportLostLanes(warp, *waits);
  switch (waits->wait) {
    case Wait::kBarrier:
      return;
    case Wait::kWarpSync:
      warp.tick = ++tick_;
      break;
    case Wait::kShuffleXor:
    case Wait::kShuffle:
    case Wait::kShuffleUp:
    case Wait::kBallot:
      if (const SimtThread* lost = Exchange(warp.lanes)) {
        Report(*lost, lost->site, "shuffle from a lane that does not exist",
               std::to_string(lost->argument));
      }
      break;
    case Wait::kLoadMatrix:
    case Wait::kLoadMatrixTrans:
      ResolveLoadMatrix(warp);
      break;
    case Wait::kMmaF16:
    case Wait::kMmaBf16:
      ++products_;
      Multiply(warp.lanes, waits->wait == Wait::kMmaBf16);
      break;
  }
  for (SimtThread* lane : warp.lanes) lane->state = SimtThread::State::kReady;
}

void SimtMachine::ReportLostLanes(const Warp& warp, const SimtThread& waits) {
  uint32_t exited = 0;
  uint32_t elsewhere = 0;
  const SimtThread* other = nullptr;
  for (const SimtThread* lane : warp.lanes) {
    if (lane->state == SimtThread::State::kExited) {
      exited |= 1u << lane->lane;
    } else if (lane->wait != waits.wait || !(lane->site == waits.site)) {
      elsewhere |= 1u << lane->lane;
      other = lane;
    }
  }
  std::string detail = "exited " + Hex(exited) + ", elsewhere " + Hex(elsewhere);
  if (other != nullptr) {
    detail += std::string(" at ") + WaitName(other->wait) + " " + other->site.ToString();
  }
  Fatal(waits, waits.site, "an operation of the warp waits for lanes that never come",
        std::string(WaitName(waits.wait)) + ": " + detail);
}

void SimtMachine::ResolveLoadMatrix(Warp& warp) {
  const char* rows[cuda::kWarp];
  for (SimtThread* lane : warp.lanes) {
    rows[lane->lane] = lane->row;
    if (!watch_) continue;
    Note(*lane, lane->site, lane->row, 16, Access::kRead, Space::kShared);
    if (dead_) return;
  }
  if (options_.counters) counter_->LoadMatrix(rows);
  LoadMatrices(warp.lanes, warp.lanes[0]->wait == Wait::kLoadMatrixTrans);
}

// Nobody can go on: all wait at one Barrier, or the kernel is wrong.
void SimtMachine::ReleaseBarrier() {
  const SimtThread* waits = nullptr;
  const SimtThread* other = nullptr;
  int64_t waiting = 0;
  int64_t exited = 0;
  for (const Warp& warp : warps_) {
    for (const SimtThread* lane : warp.lanes) {
      if (lane->state == SimtThread::State::kExited) {
        ++exited;
        continue;
      }
      ++waiting;
      if (waits == nullptr) waits = lane;
      if (!(lane->site == waits->site)) other = lane;
    }
  }
  if (waits == nullptr) return;
  if (exited > 0) {
    return Fatal(
        *waits, waits->site, "Barrier reached by part of the block",
        std::to_string(waiting) + " wait, " + std::to_string(exited) + " have exited");
  }
  if (other != nullptr) {
    return Fatal(*waits, waits->site, "threads of one block wait at different Barriers",
                 "other: " + other->site.ToString());
  }
  barrier_tick_ = ++tick_;
  for (Warp& warp : warps_) {
    warp.tick = barrier_tick_;
    for (SimtThread* lane : warp.lanes) lane->state = SimtThread::State::kReady;
  }
}

void SimtMachine::WaitFor(Wait wait, const Site& site) {
  SimtThread& self = *current_;
  self.wait = wait;
  self.site = site;
  self.state = SimtThread::State::kWaits;
  self.fiber.Suspend();
}

void SimtMachine::Exit(SimtThread& thread) {
  thread.state = SimtThread::State::kExited;
  if (!thread.copies.empty()) {
    Report(thread, thread.copies[0].site, "cp.async in flight at exit (no wait)");
  }
}

void SimtMachine::Fatal(const SimtThread& thread, const Site& site, const char* what,
                        const std::string& detail) {
  Report(thread, site, what, detail);
  dead_ = true;
}

void SimtMachine::Report(const SimtThread& thread, const Site& site, const char* what,
                         const std::string& detail) {
  if (reports_.Repeats(what, site)) return;
  SimtReport report;
  report.detail = detail;
  report.kernel = kernel_->name;
  std::copy(block_, block_ + 3, report.block);
  report.thread = thread.thread;
  reports_.Add(what, site, std::move(report));
}

void SimtMachine::LeaveIfDead() {
  if (dead_) current_->fiber.Abandon();
}

}  // namespace renga::test
