#include "metrics/process_stats.h"

#include <dirent.h>
#include <sys/resource.h>
#include <unistd.h>

#include <ctime>
#include <fstream>
#include <sstream>
#include <string>

namespace renga {
namespace {

double Seconds(const std::timespec& time) {
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

// Seconds from the machine's start to 1970, as the wall clock is now.
double BootSeconds() {
  std::timespec wall{};
  std::timespec since_boot{};
  clock_gettime(CLOCK_REALTIME, &wall);
  clock_gettime(CLOCK_BOOTTIME, &since_boot);
  return Seconds(wall) - Seconds(since_boot);
}

double OpenDescriptors() {
  DIR* folder = opendir("/proc/self/fd");
  if (folder == nullptr) return 0.0;
  double entries = 0.0;
  // NOLINTNEXTLINE(concurrency-mt-unsafe): nobody else reads this stream.
  while (readdir(folder) != nullptr) ++entries;
  closedir(folder);
  return entries > 3.0 ? entries - 3.0 : 0.0;  // ".", ".." and the folder itself.
}

double MaxDescriptors() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return 0.0;
  return static_cast<double>(limit.rlim_cur);
}

// Fields of /proc/self/stat, numbered from 1 as proc(5) does.
void ReadStat(ProcessStats& stats) {
  constexpr int kUserTicks = 14;
  constexpr int kSystemTicks = 15;
  constexpr int kThreads = 20;
  constexpr int kStartTicks = 22;
  constexpr int kVirtualBytes = 23;
  constexpr int kResidentPages = 24;
  std::ifstream file("/proc/self/stat");
  std::string line;
  if (!std::getline(file, line)) return;
  // Field 2 is a name in brackets that may hold anything, blanks and brackets too.
  const size_t name_end = line.rfind(')');
  if (name_end == std::string::npos) return;
  std::istringstream rest(line.substr(name_end + 1));
  std::string state;
  rest >> state;
  const auto ticks = static_cast<double>(sysconf(_SC_CLK_TCK));
  double value = 0.0;
  for (int field = 4; field <= kResidentPages && rest >> value; ++field) {
    switch (field) {
      case kUserTicks:
      case kSystemTicks:
        stats.cpu_seconds += value / ticks;
        break;
      case kThreads:
        stats.threads = value;
        break;
      case kStartTicks:
        stats.start_seconds = BootSeconds() + value / ticks;
        break;
      case kVirtualBytes:
        stats.virtual_bytes = value;
        break;
      case kResidentPages:
        stats.resident_bytes = value * static_cast<double>(sysconf(_SC_PAGESIZE));
        break;
      default:
        break;
    }
  }
}

}  // namespace

ProcessStats ReadProcessStats() {
  ProcessStats stats;
  ReadStat(stats);
  stats.open_descriptors = OpenDescriptors();
  stats.max_descriptors = MaxDescriptors();
  return stats;
}

}  // namespace renga
