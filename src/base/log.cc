#include "base/log.h"

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <memory>
#include <utility>

#include "base/log_line.h"
#include "base/status_macros.h"

namespace renga {
namespace {

spdlog::level::level_enum ToSpdlog(LogLevel level) {
  switch (level) {
    case LogLevel::kTrace:
      return spdlog::level::trace;
    case LogLevel::kDebug:
      return spdlog::level::debug;
    case LogLevel::kInfo:
      return spdlog::level::info;
    case LogLevel::kWarn:
      return spdlog::level::warn;
    case LogLevel::kError:
      return spdlog::level::err;
  }
  return spdlog::level::info;
}

bool& JsonFormat() {
  static bool json = false;  // Written once, by ConfigureLog, before threads start.
  return json;
}

}  // namespace

Status ConfigureLog(std::string_view level, std::string_view format) {
  RENGA_ASSIGN_OR_RETURN(const LogSettings settings, ParseLogSettings(level, format));
  JsonFormat() = settings.json;
  auto logger = std::make_shared<spdlog::logger>(
      "renga", std::make_shared<spdlog::sinks::stderr_sink_mt>());
  logger->set_pattern(JsonFormat()
                          ? R"({"time":"%Y-%m-%dT%H:%M:%S.%e%z","level":"%l",%v})"
                          : "%Y-%m-%dT%H:%M:%S.%e %l %v");
  logger->set_level(ToSpdlog(settings.level));
  logger->flush_on(spdlog::level::trace);
  spdlog::set_default_logger(std::move(logger));
  return OkStatus();
}

Status SetLogLevel(std::string_view level) {
  RENGA_ASSIGN_OR_RETURN(const LogLevel parsed, ParseLogLevel(level));
  spdlog::default_logger_raw()->set_level(ToSpdlog(parsed));
  return OkStatus();
}

void Log(LogLevel level, std::string_view event, std::initializer_list<LogField> fields) {
  const auto spd_level = ToSpdlog(level);
  if (!spdlog::default_logger_raw()->should_log(spd_level)) return;
  spdlog::default_logger_raw()->log(spd_level, LogLine(JsonFormat(), event, fields));
}

}  // namespace renga
