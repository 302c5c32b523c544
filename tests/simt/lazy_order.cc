#include "tests/simt/lazy_order.h"

namespace renga::test {

namespace {

// The first byte that both hold, or null. Both are merged.
const char* Overlap(const std::vector<MemoryRange>& a,
                    const std::vector<MemoryRange>& b) {
  size_t i = 0;
  size_t j = 0;
  while (i < a.size() && j < b.size()) {
    const char* first = std::max(a[i].begin, b[j].begin);
    const char* a_end = a[i].begin + a[i].bytes;
    const char* b_end = b[j].begin + b[j].bytes;
    if (first < std::min(a_end, b_end)) return first;
    if (a_end < b_end) {
      ++i;
    } else {
      ++j;
    }
  }
  return nullptr;
}

// In the order of the program, whatever order they ran in. Of two parties without an
// order that were called at one moment of the host, neither is the host.
bool CalledBefore(const Moment& a, const Moment& b) {
  const int64_t host_a = a.after.Of(kHostLine);
  const int64_t host_b = b.after.Of(kHostLine);
  return host_a != host_b ? host_a < host_b : a.number < b.number;
}

// "kernel kAdd" of "kernel kAdd (call 7)": the same race in each step is one report.
std::string KindOf(const std::string& who) { return who.substr(0, who.find(" (")); }

}  // namespace

std::vector<MemoryRange> MergeRanges(std::vector<MemoryRange> ranges) {
  std::sort(ranges.begin(), ranges.end(),
            [](const MemoryRange& a, const MemoryRange& b) { return a.begin < b.begin; });
  std::vector<MemoryRange> merged;
  for (const MemoryRange& range : ranges) {
    if (range.bytes == 0) continue;
    if (!merged.empty() && range.begin <= merged.back().begin + merged.back().bytes) {
      merged.back().bytes =
          std::max(merged.back().bytes, range.begin + range.bytes - merged.back().begin);
    } else {
      merged.push_back(range);
    }
  }
  return merged;
}

void AccessHistory::Add(Access access) {
  access.reads = MergeRanges(std::move(access.reads));
  access.writes = MergeRanges(std::move(access.writes));
  for (const Access& other : accesses_) {
    if (access.when.ComesAfter(other.when) || other.when.ComesAfter(access.when)) {
      continue;
    }
    const bool other_first = CalledBefore(other.when, access.when);
    Compare(other_first ? other : access, other_first ? access : other);
  }
  accesses_.push_back(std::move(access));
}

void AccessHistory::Compare(const Access& first, const Access& second) {
  const struct {
    const std::vector<MemoryRange>& of_first;
    const std::vector<MemoryRange>& of_second;
    const char* what;
  } kinds[] = {{first.writes, second.writes, "both write"},
               {first.writes, second.reads, "the first writes, the second reads"},
               {first.reads, second.writes, "the first reads, the second writes"}};
  for (const auto& kind : kinds) {
    const char* at = Overlap(kind.of_first, kind.of_second);
    if (at == nullptr) continue;
    if (!reported_.emplace(KindOf(first.who), KindOf(second.who)).second) return;
    const std::string where = describe_ ? describe_(at) : "the same memory";
    races_.push_back(first.who + " and " + second.who + " touch " + where +
                     " without an order: " + kind.what);
    return;
  }
}

void AccessHistory::Forget(const LineClock& host,
                           const std::vector<const Moment*>& pending) {
  const auto settled = [&](const Access& access) {
    const Moment& when = access.when;
    return host.Of(when.line) >= when.number &&
           std::all_of(pending.begin(), pending.end(),
                       [&](const Moment* other) { return other->ComesAfter(when); });
  };
  accesses_.erase(std::remove_if(accesses_.begin(), accesses_.end(), settled),
                  accesses_.end());
}

}  // namespace renga::test
