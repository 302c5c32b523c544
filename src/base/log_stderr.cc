// The functions of log.h on the standard library alone, for RENGA_ENGINE_ONLY; the lines
// are those of log.cc.

#include <time.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <mutex>
#include <string>

#include "base/log.h"
#include "base/log_line.h"
#include "base/mutex.h"
#include "base/status_macros.h"

namespace renga {
namespace {

struct State {
  std::atomic<LogLevel> level{LogLevel::kInfo};
  std::atomic<bool> json{false};
  Mutex one_line;  // At a time.
};
State& TheState() {
  static State state;
  return state;
}

const char* LevelName(LogLevel level) {
  switch (level) {
    case LogLevel::kTrace:
      return "trace";
    case LogLevel::kDebug:
      return "debug";
    case LogLevel::kInfo:
      return "info";
    case LogLevel::kWarn:
      return "warning";
    case LogLevel::kError:
      return "error";
  }
  return "info";
}

// Local time to the millisecond; with JSON also the zone, "+01:00".
std::string Now(bool json) {
  const auto now = std::chrono::system_clock::now();
  const time_t seconds = std::chrono::system_clock::to_time_t(now);
  const auto since = now.time_since_epoch();
  const auto rest = std::chrono::duration_cast<std::chrono::milliseconds>(since) % 1000;
  tm parts{};
  localtime_r(&seconds, &parts);
  char text[48];
  size_t n = strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &parts);
  n += static_cast<size_t>(
      std::snprintf(text + n, sizeof text - n, ".%03d", static_cast<int>(rest.count())));
  if (json) {
    const long minutes = parts.tm_gmtoff / 60;
    const long size = minutes < 0 ? -minutes : minutes;
    std::snprintf(text + n, sizeof text - n, "%c%02d:%02d", minutes < 0 ? '-' : '+',
                  static_cast<int>(size / 60 % 24), static_cast<int>(size % 60));
  }
  return text;
}

}  // namespace

Status ConfigureLog(std::string_view level, std::string_view format) {
  RENGA_ASSIGN_OR_RETURN(const LogSettings settings, ParseLogSettings(level, format));
  TheState().json = settings.json;
  TheState().level = settings.level;
  return OkStatus();
}

Status SetLogLevel(std::string_view level) {
  RENGA_ASSIGN_OR_RETURN(const LogLevel parsed, ParseLogLevel(level));
  TheState().level = parsed;
  return OkStatus();
}

void Log(LogLevel level, std::string_view event, std::initializer_list<LogField> fields) {
  State& state = TheState();
  if (level < state.level) return;
  const bool json = state.json;
  const std::string time = Now(json);
  const std::string body = LogLine(json, event, fields);
  const std::string line = json ? "{\"time\":\"" + time + "\",\"level\":\"" +
                                      LevelName(level) + "\"," + body + "}\n"
                                : time + ' ' + LevelName(level) + ' ' + body + '\n';
  const MutexLock lock(state.one_line);
  std::fwrite(line.data(), 1, line.size(), stderr);
}

}  // namespace renga
