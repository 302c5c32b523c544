#include "tests/simt/trace.h"

#include <algorithm>
#include <array>

namespace renga::test {
namespace {

constexpr uintptr_t kSectorBytes = 32;
constexpr uintptr_t kBankBytes = 4;
constexpr int kBanks = 32;
constexpr int kRowBytes = 16;

// How many lanes go through the banks at once: 128 bytes in all.
int LanesOfPass(int bytes) {
  if (bytes <= 4) return 32;
  return bytes <= 8 ? 16 : 8;
}

void Add(const Traffic& from, Traffic& to) {
  to.requests += from.requests;
  to.sectors += from.sectors;
  to.bytes += from.bytes;
}

}  // namespace

void TraceCounter::Flush(LaneTrace* const (&lanes)[kLanes]) {
  std::array<size_t, kLanes> next{};
  std::array<const TraceEntry*, kLanes> group{};
  for (;;) {
    const TraceEntry* first = nullptr;
    for (int lane = 0; lane < kLanes; ++lane) {
      const size_t at = next[static_cast<size_t>(lane)];
      if (at == lanes[lane]->size()) continue;
      const TraceEntry* entry = &(*lanes[lane])[at];
      if (first == nullptr || entry->site < first->site) first = entry;
    }
    if (first == nullptr) break;
    int count = 0;
    for (int lane = 0; lane < kLanes; ++lane) {
      size_t& at = next[static_cast<size_t>(lane)];
      if (at == lanes[lane]->size()) continue;
      const TraceEntry* entry = &(*lanes[lane])[at];
      if (entry->site != first->site || entry->bytes != first->bytes ||
          entry->shared != first->shared || entry->access != first->access) {
        continue;
      }
      group[static_cast<size_t>(count++)] = entry;
      ++at;
    }
    Count(group.data(), count);
  }
  for (LaneTrace* lane : lanes) lane->clear();
}

void TraceCounter::Count(const TraceEntry* const* entries, int count) {
  if (entries[0]->shared) {
    CountShared(entries, count, LanesOfPass(entries[0]->bytes));
  } else {
    CountGlobal(entries, count);
  }
}

void TraceCounter::CountGlobal(const TraceEntry* const* entries, int count) {
  const SimtBuffer* buffer = memory_.Find(entries[0]->at);
  if (buffer == nullptr) return;
  std::array<uintptr_t, 4 * kLanes> sectors{};
  size_t n = 0;
  int64_t bytes = 0;
  for (int i = 0; i < count; ++i) {
    const uintptr_t begin = reinterpret_cast<uintptr_t>(entries[i]->at);
    const uintptr_t last = begin + static_cast<uintptr_t>(entries[i]->bytes) - 1;
    bytes += entries[i]->bytes;
    for (uintptr_t s = begin / kSectorBytes; s <= last / kSectorBytes; ++s) {
      if (n > 0 && sectors[n - 1] == s) continue;
      if (n < sectors.size()) sectors[n++] = s;
    }
  }
  std::sort(sectors.begin(), sectors.begin() + static_cast<int64_t>(n));
  const auto end =
      std::unique(sectors.begin(), sectors.begin() + static_cast<int64_t>(n));
  BufferTraffic& both = buffers_[buffer];
  const auto add = [&](Traffic& traffic) {
    ++traffic.requests;
    traffic.sectors += end - sectors.begin();
    traffic.bytes += bytes;
  };
  if (entries[0]->access != Access::kWrite) add(both.read);
  if (entries[0]->access != Access::kRead) add(both.written);
}

void TraceCounter::CountShared(const TraceEntry* const* entries, int count,
                               int lanes_of_pass) {
  ++shared_requests_;
  for (int i = 0; i < count; i += lanes_of_pass) {
    CountPass(entries + i, std::min(lanes_of_pass, count - i));
  }
}

// Lanes that want the same word of a bank are served together, other words one by one.
void TraceCounter::CountPass(const TraceEntry* const* entries, int count) {
  std::array<std::array<uintptr_t, kLanes>, kBanks> words;
  std::array<int, kBanks> wanted{};
  int most = 1;
  for (int i = 0; i < count; ++i) {
    const uintptr_t begin = reinterpret_cast<uintptr_t>(entries[i]->at);
    const uintptr_t last = begin + static_cast<uintptr_t>(entries[i]->bytes) - 1;
    for (uintptr_t word = begin / kBankBytes; word <= last / kBankBytes; ++word) {
      const size_t bank = word % kBanks;
      const auto known = words[bank].begin() + wanted[bank];
      if (std::find(words[bank].begin(), known, word) != known) continue;
      if (wanted[bank] == kLanes) continue;
      words[bank][static_cast<size_t>(wanted[bank]++)] = word;
      most = std::max(most, wanted[bank]);
    }
  }
  wavefronts_ += most;
  ++ideal_wavefronts_;
}

void TraceCounter::LoadMatrix(const char* const (&rows)[kLanes]) {
  std::array<TraceEntry, kLanes> entries;
  std::array<const TraceEntry*, kLanes> pointers{};
  for (size_t lane = 0; lane < kLanes; ++lane) {
    entries[lane] = {.at = rows[lane], .bytes = kRowBytes, .shared = true};
    pointers[lane] = &entries[lane];
  }
  CountShared(pointers.data(), kLanes, LanesOfPass(kRowBytes));
}

void TraceCounter::AddTo(SimtCounters& counters) const {
  for (const auto& [buffer, traffic] : buffers_) {
    BufferTraffic& named = counters.buffers[buffer->name];
    for (BufferTraffic* sum : {&named, &counters.global}) {
      Add(traffic.read, sum->read);
      Add(traffic.written, sum->written);
    }
  }
  counters.shared_requests += shared_requests_;
  counters.shared_wavefronts += wavefronts_;
  counters.ideal_wavefronts += ideal_wavefronts_;
}

}  // namespace renga::test
