#include "base/log_line.h"

#include <cstdio>
#include <utility>

namespace renga {
namespace {

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

std::optional<LogLevel> LevelOf(std::string_view name) {
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

StatusOr<LogSettings> ParseLogSettings(std::string_view level, std::string_view format) {
  if (format != "text" && format != "json") {
    return InvalidArgument("log.format", "must be text or json");
  }
  const std::optional<LogLevel> parsed = LevelOf(level);
  if (!parsed) return NoSuchLevel("log.level");
  return LogSettings{.level = *parsed, .json = format == "json"};
}

StatusOr<LogLevel> ParseLogLevel(std::string_view level) {
  const std::optional<LogLevel> parsed = LevelOf(level);
  if (!parsed) return NoSuchLevel("level");
  return *parsed;
}

std::string LogLine(bool json, std::string_view event,
                    std::initializer_list<LogField> fields) {
  return json ? JsonLine(event, fields) : TextLine(event, fields);
}

}  // namespace renga
