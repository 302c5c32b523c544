#include "tests/simt/source_lines.h"

#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <map>

extern "C" const char
    __executable_start[];  // The linker's: where the program's image is.

namespace renga::test {
namespace {

// Where debug information says the code is: programs are loaded anywhere.
uintptr_t FileAddress(const void* pc) {
  constexpr size_t kTypeOffset = 16;  // e_type of the ELF header.
  constexpr uint16_t kPositionIndependent = 3;
  uint16_t type = 0;
  std::memcpy(&type, __executable_start + kTypeOffset, sizeof type);
  const uintptr_t at = reinterpret_cast<uintptr_t>(pc) - 1;
  return type == kPositionIndependent
             ? at - reinterpret_cast<uintptr_t>(__executable_start)
             : at;
}

std::string Ask(const void* pc) {
  char command[160];
  std::snprintf(command, sizeof command, "addr2line -e /proc/%d/exe 0x%jx 2>/dev/null",
                static_cast<int>(getpid()), static_cast<uintmax_t>(FileAddress(pc)));
  FILE* pipe = popen(command, "r");
  if (pipe == nullptr) return "?";
  char line[1024] = "";
  const bool read = std::fgets(line, sizeof line, pipe) != nullptr;
  pclose(pipe);
  if (!read) return "?";
  std::string text = line;
  text.resize(text.find_first_of(" \n"));  // "file:line (discriminator 2)"
  return BaseName(text);
}

}  // namespace

std::string BaseName(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? path : path.substr(slash + 1);
}

std::string SourceLine(const void* pc) {
  thread_local std::map<const void*, std::string> lines;
  const auto it = lines.find(pc);
  if (it != lines.end()) return it->second;
  return lines.emplace(pc, Ask(pc)).first->second;
}

}  // namespace renga::test
