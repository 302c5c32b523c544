#include "base/log.h"

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <cstdio>
#include <memory>
#include <optional>
#include <utility>

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

// JSON string body: quotes, backslashes and control characters escaped.
void AppendEscaped(std::string_view text, std::string& out) {
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      char code[8];
      std::snprintf(code, sizeof code, "\\u%04x", static_cast<unsigned>(c));
      out += code;
    } else {
      out += c;
    }
  }
}

bool& JsonFormat() {
  static bool json = false;  // Written once, by ConfigureLog, before threads start.
  return json;
}

std::string JsonLine(std::string_view event, std::initializer_list<LogField> fields) {
  std::string line = "\"event\":\"";
  AppendEscaped(event, line);
  line += '"';
  for (const LogField& field : fields) {
    line += ",\"";
    AppendEscaped(field.key, line);
    line += field.number ? "\":" : "\":\"";
    AppendEscaped(field.value, line);
    if (!field.number) line += '"';
  }
  return line;
}

std::string TextLine(std::string_view event, std::initializer_list<LogField> fields) {
  std::string line(event);
  for (const LogField& field : fields) {
    line += ' ';
    line += field.key;
    line += '=';
    // One event stays one line, whatever a value holds.
    AppendEscaped(field.value, line);
  }
  return line;
}

std::optional<LogLevel> ParseLevel(std::string_view name) {
  const std::pair<std::string_view, LogLevel> levels[] = {{"trace", LogLevel::kTrace},
                                                          {"debug", LogLevel::kDebug},
                                                          {"info", LogLevel::kInfo},
                                                          {"warn", LogLevel::kWarn},
                                                          {"error", LogLevel::kError}};
  for (const auto& [word, level] : levels) {
    if (word == name) return level;
  }
  return std::nullopt;
}

Status NoSuchLevel(std::string field) {
  return InvalidArgument(std::move(field), "must be trace, debug, info, warn or error");
}

}  // namespace

Status ConfigureLog(std::string_view level, std::string_view format) {
  if (format != "text" && format != "json") {
    return InvalidArgument("log.format", "must be text or json");
  }
  const std::optional<LogLevel> parsed = ParseLevel(level);
  if (!parsed) return NoSuchLevel("log.level");
  JsonFormat() = format == "json";
  auto logger = std::make_shared<spdlog::logger>(
      "renga", std::make_shared<spdlog::sinks::stderr_sink_mt>());
  logger->set_pattern(JsonFormat()
                          ? R"({"time":"%Y-%m-%dT%H:%M:%S.%e%z","level":"%l",%v})"
                          : "%Y-%m-%dT%H:%M:%S.%e %l %v");
  logger->set_level(ToSpdlog(*parsed));
  logger->flush_on(spdlog::level::trace);
  spdlog::set_default_logger(std::move(logger));
  return OkStatus();
}

Status SetLogLevel(std::string_view level) {
  const std::optional<LogLevel> parsed = ParseLevel(level);
  if (!parsed) return NoSuchLevel("level");
  spdlog::default_logger_raw()->set_level(ToSpdlog(*parsed));
  return OkStatus();
}

void Log(LogLevel level, std::string_view event, std::initializer_list<LogField> fields) {
  const auto spd_level = ToSpdlog(level);
  if (!spdlog::default_logger_raw()->should_log(spd_level)) return;
  spdlog::default_logger_raw()->log(
      spd_level, JsonFormat() ? JsonLine(event, fields) : TextLine(event, fields));
}

}  // namespace renga
