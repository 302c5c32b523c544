// LazyDevice: how what was called comes to run.

#include <algorithm>
#include <cstring>
#include <utility>

#include "tests/simt/lazy_device.h"
#include "tests/simt/simt_device.h"

namespace renga::test {

namespace {

// One call in so many, after which the device goes on by itself; and one wait in so many
// that more has run after than was waited for.
constexpr uint32_t kByItself = 8;
constexpr uint32_t kMore = 2;

bool Overlaps(const void* a, int64_t a_bytes, const void* b, int64_t b_bytes) {
  const char* p = static_cast<const char*>(a);
  const char* q = static_cast<const char*>(b);
  return p < q + b_bytes && q < p + a_bytes;
}

}  // namespace

std::string LazyDevice::Operation::Name() const {
  switch (kind) {
    case Kind::kCopyIn:
      return "a copy to the device";
    case Kind::kCopyOut:
      return "a copy to the host";
    case Kind::kCopyOnDevice:
      return "a copy on the device";
    case Kind::kFill:
      return "a fill";
    case Kind::kLaunch:
      return std::string("kernel ") + kernel->name;
    case Kind::kGemm:
      break;
  }
  return "a product";
}

LazyDevice::NodeId LazyDevice::Enqueue(Operation operation, LineId line,
                                       const Tip& after) {
  const NodeId id = next_node_++;
  Node node{.operation = std::move(operation),
            .when = {},
            .name = {},
            .needs = {},
            .snapshot = {}};
  node.name = node.operation.Name() + " (call " + std::to_string(id) + ")";
  node.when = {.line = line, .number = id, .after = after.after};
  node.when.after.Join(host_);
  node.when.after.Set(line, id);
  for (const NodeId need : after.nodes) {
    if (pending_.count(need) != 0) node.needs.insert(need);
  }
  const Operation& work = node.operation;
  if (work.kind == Operation::Kind::kCopyIn && work.staged.empty()) {
    const char* source = static_cast<const char*>(work.from);
    node.snapshot.assign(source, source + work.bytes);
  }
  pending_.emplace(id, std::move(node));
  return id;
}

Status LazyDevice::Settle(const std::vector<NodeId>& called) {
  for (const NodeId id : called) SpoilDestination(id);
  if (options_.eager) {
    while (RunAny()) {
    }
  } else {
    while (Chance(kByItself) && RunAny()) {
    }
  }
  return OkStatus();  // An error of the device shows at a later call.
}

// What a copy to pinned memory is going to write has no meaning until it has.
void LazyDevice::SpoilDestination(NodeId id) {
  const Operation& copy = pending_.at(id).operation;
  if (copy.kind != Operation::Kind::kCopyOut || !memory_.IsPinned(copy.to, copy.bytes)) {
    return;
  }
  for (const auto& [other_id, other] : pending_) {
    const bool reads_host = other.operation.kind == Operation::Kind::kCopyIn;
    if (reads_host &&
        Overlaps(copy.to, copy.bytes, other.operation.from, other.operation.bytes)) {
      return;
    }
  }
  std::memset(copy.to, 0xff, static_cast<size_t>(copy.bytes));
}

bool LazyDevice::RunAny() {
  std::vector<NodeId> ready;
  for (const auto& [id, node] : pending_) {
    if (node.needs.empty()) ready.push_back(id);
  }
  if (ready.empty()) return false;
  RunOne(ready[random_() % ready.size()]);
  return true;
}

void LazyDevice::RunUntil(const std::set<NodeId>& wanted) {
  const auto waits = [&] {
    return std::any_of(wanted.begin(), wanted.end(),
                       [&](NodeId id) { return pending_.count(id) != 0; });
  };
  while (waits() && RunAny()) {
  }
  while (Chance(kMore) && RunAny()) {
  }
}

Status LazyDevice::WaitFor(const Tip& tip) {
  RunUntil(tip.nodes);
  if (!lost_.ok()) return lost_;
  host_.Join(tip.after);
  std::vector<const Moment*> pending;
  for (const auto& [id, node] : pending_) pending.push_back(&node.when);
  history_.Forget(host_, pending);
  return OkStatus();
}

void LazyDevice::RunOne(NodeId id) {
  auto taken = pending_.extract(id);
  const Node& node = taken.mapped();
  for (auto& [other_id, other] : pending_) other.needs.erase(id);
  SimtRun run = Execute(node);
  for (const SimtReport& report : run.reports) Report(report.ToString());
  CheckLives(node, run);
  history_.Add({.when = node.when,
                .who = node.name,
                .reads = std::move(run.reads),
                .writes = std::move(run.writes)});
  if (run.ok() || !lost_.ok()) return;
  lost_ = Unavailable(node.name + " failed: " + run.reports.front().ToString());
  // Not that it mattered now, but an order that is missing shall be reported too.
  while (RunAny()) {
  }
}

SimtRun LazyDevice::Execute(const Node& node) {
  SimtOptions simt = options_.simt;
  simt.ranges = true;
  const Operation& work = node.operation;
  if (work.kind == Operation::Kind::kLaunch) {
    return RunKernel(*work.kernel, work.shape, work.args.data(), memory_.device(), simt);
  }
  if (work.kind == Operation::Kind::kGemm) {
    return RunGemm(work.gemm, memory_.device(), simt);
  }
  SimtRun run;
  ExecuteCopy(node, run);
  return run;
}

void LazyDevice::ExecuteCopy(const Node& node, SimtRun& run) {
  using Kind = Operation::Kind;
  const Operation& work = node.operation;
  const bool pageable = !work.staged.empty();
  SimtMemory& device = memory_.device();
  if (work.kind == Kind::kCopyIn) {
    const void* from = pageable ? work.staged.data() : work.from;
    if (!node.snapshot.empty() &&
        std::memcmp(node.snapshot.data(), from, node.snapshot.size()) != 0) {
      Report("the host changed what " + work.Name() + " had still to read");
    }
    device.Write(work.to, from, work.bytes);
  } else if (work.kind == Kind::kCopyOut) {
    std::memcpy(work.to, work.from, static_cast<size_t>(work.bytes));
  } else if (work.kind == Kind::kCopyOnDevice) {
    device.Copy(work.to, work.from, work.bytes);
  } else if (work.byte == 0xff && options_.fill_poisons) {
    device.Poison(work.to, work.bytes);
  } else {
    device.Fill(work.to, work.byte, work.bytes);
  }
  if (work.from != nullptr && !pageable) {
    run.reads.push_back({static_cast<const char*>(work.from), work.bytes});
  }
  // What a copy writes to pageable memory is the caller's, who has waited for it.
  if (work.kind != Kind::kCopyOut || memory_.IsPinned(work.to, work.bytes)) {
    run.writes.push_back({static_cast<const char*>(work.to), work.bytes});
  }
}

void LazyDevice::CheckLives(const Node& node, const SimtRun& run) {
  const int64_t called = node.when.after.Of(kHostLine);
  for (const auto* ranges : {&run.reads, &run.writes}) {
    for (const MemoryRange& range : *ranges) {
      const std::string wrong = memory_.CheckAlive(range, called);
      if (!wrong.empty()) Report(node.operation.Name() + " " + wrong);
    }
  }
}

}  // namespace renga::test
