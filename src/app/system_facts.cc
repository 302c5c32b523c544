#include "app/system_facts.h"

#include <sched.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <iterator>
#include <optional>
#include <sstream>
#include <string_view>
#include <thread>

namespace renga {
namespace {

constexpr std::string_view kFlags[] = {
    "avx2",     "fma",         "f16c",        "avx_vnni", "avx512f",  "avx512bw",
    "avx512vl", "avx512_vnni", "avx512_bf16", "amx_tile", "amx_int8", "amx_bf16"};

// Limits above this are none: version 1 writes a number near 2^63 instead.
constexpr int64_t kNoLimit = int64_t{1} << 60;

std::string ReadFile(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return in ? std::string(std::istreambuf_iterator<char>(in), {}) : std::string();
}

std::string_view Trimmed(std::string_view text) {
  constexpr std::string_view kSpace = " \t\n";
  const size_t begin = text.find_first_not_of(kSpace);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kSpace) - begin + 1);
}

std::optional<int64_t> Number(std::string_view text) {
  text = Trimmed(text);
  int64_t value = 0;
  const auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end == text.data()) return std::nullopt;
  return value;
}

// The value of the first line "name : value" of such a file.
std::string_view ValueOf(std::string_view file, std::string_view name) {
  while (!file.empty()) {
    const size_t end = std::min(file.find('\n'), file.size());
    const std::string_view line = file.substr(0, end);
    file.remove_prefix(std::min(end + 1, file.size()));
    const size_t colon = line.find(':');
    if (colon == std::string_view::npos || Trimmed(line.substr(0, colon)) != name)
      continue;
    return Trimmed(line.substr(colon + 1));
  }
  return {};
}

void ReadCpu(const std::string& root, SystemFacts& facts) {
  const std::string info = ReadFile(root + "/proc/cpuinfo");
  facts.cpu = ValueOf(info, "model name");
  std::istringstream words{std::string(ValueOf(info, "flags"))};
  const std::vector<std::string> all{std::istream_iterator<std::string>(words), {}};
  for (const std::string_view flag : kFlags) {
    if (std::find(all.begin(), all.end(), flag) != all.end()) {
      facts.flags.emplace_back(flag);
    }
  }
}

void ReadCores(SystemFacts& facts) {
  facts.cores = static_cast<int32_t>(std::max(std::thread::hardware_concurrency(), 1u));
  facts.allowed_cores = facts.cores;
  cpu_set_t mask;
  CPU_ZERO(&mask);
  if (sched_getaffinity(0, sizeof mask, &mask) == 0) {
    facts.allowed_cores = std::max(CPU_COUNT(&mask), 1);
  }
  facts.cores = std::max(facts.cores, facts.allowed_cores);
}

void ReadMemory(const std::string& root, SystemFacts& facts) {
  const std::string info = ReadFile(root + "/proc/meminfo");
  facts.memory_bytes = Number(ValueOf(info, "MemTotal")).value_or(0) * 1024;
  facts.available_bytes = Number(ValueOf(info, "MemAvailable")).value_or(0) * 1024;
}

// "0.52 0.58 0.59 1/467 12345": the first is the last minute's.
void ReadLoad(const std::string& root, SystemFacts& facts) {
  std::istringstream text(ReadFile(root + "/proc/loadavg"));
  text >> facts.load;
}

// "always [madvise] never" -> "madvise".
void ReadHugePages(const std::string& root, SystemFacts& facts) {
  const std::string text = ReadFile(root + "/sys/kernel/mm/transparent_hugepage/enabled");
  const size_t open = text.find('[');
  const size_t close = text.find(']');
  if (open != std::string::npos && close != std::string::npos && open < close) {
    facts.huge_pages = text.substr(open + 1, close - open - 1);
  }
}

void NoteQuota(double cores, SystemFacts& facts) {
  if (cores <= 0.0) return;
  facts.quota_cores =
      facts.quota_cores == 0.0 ? cores : std::min(facts.quota_cores, cores);
}

void NoteLimit(const std::string& limit_file, const std::string& used_file,
               SystemFacts& facts) {
  const std::optional<int64_t> limit = Number(ReadFile(limit_file));
  if (!limit || *limit <= 0 || *limit >= kNoLimit) return;
  if (facts.limit_bytes != 0 && facts.limit_bytes <= *limit) return;
  facts.limit_bytes = *limit;
  facts.limit_used_bytes = Number(ReadFile(used_file)).value_or(0);
}

// One group of version 2; "cpu.max" is "QUOTA PERIOD" or "max PERIOD".
void ReadGroup2(const std::string& folder, SystemFacts& facts) {
  std::istringstream quota(ReadFile(folder + "/cpu.max"));
  double used = 0.0;
  double period = 0.0;
  if (quota >> used >> period && period > 0.0) NoteQuota(used / period, facts);
  NoteLimit(folder + "/memory.max", folder + "/memory.current", facts);
}

void ReadGroup1Cpu(const std::string& folder, SystemFacts& facts) {
  const auto quota = Number(ReadFile(folder + "/cpu.cfs_quota_us"));
  const auto period = Number(ReadFile(folder + "/cpu.cfs_period_us"));
  if (!quota || !period || *quota <= 0 || *period <= 0) return;
  NoteQuota(static_cast<double>(*quota) / static_cast<double>(*period), facts);
}

void ReadGroup1Memory(const std::string& folder, SystemFacts& facts) {
  NoteLimit(folder + "/memory.limit_in_bytes", folder + "/memory.usage_in_bytes", facts);
}

// The group and all above it. In a container the path may be the host's, and its own
// group is then mounted at the top.
void Climb(const std::string& top, std::string_view path,
           void (*read)(const std::string& folder, SystemFacts& facts),
           SystemFacts& facts) {
  while (path.size() > 1) {
    read(top + std::string(path), facts);
    path = path.substr(0, path.rfind('/'));
  }
  read(top, facts);
}

// Lines "NUMBER:CONTROLLERS:PATH"; version 2 has no controllers there.
void ReadGroups(const std::string& root, SystemFacts& facts) {
  const std::string groups = root + "/sys/fs/cgroup";
  std::istringstream lines(ReadFile(root + "/proc/self/cgroup"));
  for (std::string line; std::getline(lines, line);) {
    const size_t first = line.find(':');
    const size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string names = ',' + line.substr(first + 1, second - first - 1) + ',';
    const std::string_view path = std::string_view(line).substr(second + 1);
    if (names == ",,") Climb(groups, path, ReadGroup2, facts);
    if (names.find(",cpu,") != std::string::npos) {
      Climb(groups + "/cpu", path, ReadGroup1Cpu, facts);
    }
    if (names.find(",memory,") != std::string::npos) {
      Climb(groups + "/memory", path, ReadGroup1Memory, facts);
    }
  }
}

}  // namespace

SystemFacts ReadSystemFacts(const std::string& root) {
  SystemFacts facts;
  ReadCpu(root, facts);
  ReadCores(facts);
  ReadMemory(root, facts);
  ReadLoad(root, facts);
  ReadHugePages(root, facts);
  ReadGroups(root, facts);
  return facts;
}

int32_t UsableCores(const SystemFacts& facts) {
  int32_t cores = std::max(facts.allowed_cores, 1);
  if (facts.quota_cores > 0.0 && facts.quota_cores < cores) {
    cores = std::max(static_cast<int32_t>(facts.quota_cores), 1);
  }
  return cores;
}

int64_t UsableBytes(const SystemFacts& facts) {
  if (facts.limit_bytes == 0) return facts.available_bytes;
  return std::min(facts.available_bytes,
                  std::max<int64_t>(facts.limit_bytes - facts.limit_used_bytes, 0));
}

}  // namespace renga
