// SimtMachine: what a launch did in all, from the shadows of what it touched.

#include <algorithm>

#include "tests/simt/machine.h"

namespace renga::test {
namespace {

constexpr int64_t kGranuleBytes = int64_t{1} << SimtBuffer::kGranuleShift;
constexpr int64_t kSectorBytes = 32;

void Grow(std::vector<MemoryRange>& ranges, const char* begin, int64_t bytes) {
  if (!ranges.empty() && ranges.back().begin + ranges.back().bytes == begin) {
    ranges.back().bytes += bytes;
  } else {
    ranges.push_back({begin, bytes});
  }
}

}  // namespace

void SimtMachine::Summarise(SimtRun& run) {
  run.counters.steps = steps_;
  run.counters.products = products_;
  if (options_.counters) counter_->AddTo(run.counters);
  if (!options_.counters && !options_.ranges) return;
  std::sort(chunks_.begin(), chunks_.end(), [](const Chunk& a, const Chunk& b) {
    if (a.buffer != b.buffer) return a.buffer->begin < b.buffer->begin;
    return a.index < b.index;
  });
  for (const Chunk& chunk : chunks_) SummariseChunk(chunk, run);
  BufferTraffic& global = run.counters.global;
  for (const auto& [name, traffic] : run.counters.buffers) {
    global.read.distinct_sectors += traffic.read.distinct_sectors;
    global.written.distinct_sectors += traffic.written.distinct_sectors;
  }
}

void SimtMachine::SummariseChunk(const Chunk& chunk, SimtRun& run) const {
  const SimtBuffer& buffer = *chunk.buffer;
  BufferTraffic uncounted;
  BufferTraffic& traffic =
      options_.counters ? run.counters.buffers[buffer.name] : uncounted;
  int64_t read_sector = -1;
  int64_t written_sector = -1;
  const int64_t first = chunk.index * SimtBuffer::kChunkBytes;
  const int64_t end = std::min(first + SimtBuffer::kChunkBytes, buffer.bytes);
  for (int64_t at = first; at < end; at += kGranuleBytes) {
    const GlobalShadow& shadow =
        buffer.shadow[static_cast<size_t>(at >> SimtBuffer::kGranuleShift)];
    const uint32_t writer = shadow.write_stamp & ~GlobalShadow::kAtomic;
    const bool written = writer >= first_stamp_;
    const bool atomic = written && writer != shadow.write_stamp;
    const int64_t bytes = std::min(kGranuleBytes, buffer.bytes - at);
    const int64_t sector = at / kSectorBytes;
    if (atomic || shadow.read_stamp >= first_stamp_) {
      if (options_.ranges) Grow(run.reads, buffer.begin + at, bytes);
      if (read_sector != sector) ++traffic.read.distinct_sectors;
      read_sector = sector;
    }
    if (written) {
      if (options_.ranges) Grow(run.writes, buffer.begin + at, bytes);
      if (written_sector != sector) ++traffic.written.distinct_sectors;
      written_sector = sector;
    }
  }
}

}  // namespace renga::test
