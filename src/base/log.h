// Logging: spdlog behind a few functions, so that no other module includes it.
//
// Messages never hold prompt text, answers or keys. `event` is a short constant; values
// go into `fields`, so that the JSON format stays greppable.
//
// Thread safety: every function may be called from any thread.

#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>

#include "renga/status.h"

namespace renga {

enum class LogLevel { kTrace, kDebug, kInfo, kWarn, kError };

// One "key=value" of a log line.
struct LogField {
  LogField(std::string_view k, std::string v) : key(k), value(std::move(v)) {}
  LogField(std::string_view k, std::string_view v) : key(k), value(v) {}
  LogField(std::string_view k, const char* v) : key(k), value(v) {}
  template <class Number>
  LogField(std::string_view k, Number v)
      : key(k), value(std::to_string(v)), number(true) {}

  std::string_view key;
  std::string value;
  bool number = false;
};

// level: trace|debug|info|warn|error; format: text|json. Output goes to stderr.
Status ConfigureLog(std::string_view level, std::string_view format);
// Changes the level alone; field "level" if there is no such one.
Status SetLogLevel(std::string_view level);

void Log(LogLevel level, std::string_view event,
         std::initializer_list<LogField> fields = {});
inline void LogInfo(std::string_view event, std::initializer_list<LogField> fields = {}) {
  Log(LogLevel::kInfo, event, fields);
}
inline void LogWarn(std::string_view event, std::initializer_list<LogField> fields = {}) {
  Log(LogLevel::kWarn, event, fields);
}
inline void LogError(std::string_view event,
                     std::initializer_list<LogField> fields = {}) {
  Log(LogLevel::kError, event, fields);
}

}  // namespace renga
