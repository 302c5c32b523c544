#include "gateway/http_message.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>
#include <ctime>

#include "gateway/json_writer.h"

namespace renga {
namespace {

char Lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; }

std::string_view Reason(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 204:
      return "No Content";
    case 304:
      return "Not Modified";
    case 400:
      return "Bad Request";
    case 401:
      return "Unauthorized";
    case 403:
      return "Forbidden";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 408:
      return "Request Timeout";
    case 409:
      return "Conflict";
    case 413:
      return "Content Too Large";
    case 415:
      return "Unsupported Media Type";
    case 417:
      return "Expectation Failed";
    case 429:
      return "Too Many Requests";
    case 431:
      return "Request Header Fields Too Large";
    case 499:
      return "Client Closed Request";
    case 500:
      return "Internal Server Error";
    case 501:
      return "Not Implemented";
    case 503:
      return "Service Unavailable";
    case 504:
      return "Gateway Timeout";
    case 505:
      return "HTTP Version Not Supported";
    default:
      return "Unknown";
  }
}

int HexValue(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  const char lower = Lower(c);
  return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
}

std::optional<std::string> PercentDecode(std::string_view text) {
  std::string decoded;
  decoded.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      decoded += text[i];
      continue;
    }
    if (i + 2 >= text.size()) return std::nullopt;
    const int high = HexValue(text[i + 1]);
    const int low = HexValue(text[i + 2]);
    if (high < 0 || low < 0) return std::nullopt;
    decoded += static_cast<char>(high * 16 + low);
    i += 2;
  }
  return decoded;
}

}  // namespace

bool EqualsIgnoringCase(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](char x, char y) { return Lower(x) == Lower(y); });
}

const std::string* HttpRequest::Header(std::string_view name) const {
  for (const HttpHeader& header : headers) {
    if (EqualsIgnoringCase(header.name, name)) return &header.value;
  }
  return nullptr;
}

size_t HttpRequest::HeaderCount(std::string_view name) const {
  return static_cast<size_t>(
      std::count_if(headers.begin(), headers.end(), [name](const HttpHeader& header) {
        return EqualsIgnoringCase(header.name, name);
      }));
}

void HttpResponse::Set(std::string_view name, std::string value) {
  for (HttpHeader& header : headers) {
    if (EqualsIgnoringCase(header.name, name)) {
      header.value = std::move(value);
      return;
    }
  }
  headers.push_back({.name = std::string(name), .value = std::move(value)});
}

std::string HeadText(const HttpResponse& response, HttpFraming framing, bool close,
                     std::string_view date) {
  std::string text = "HTTP/1.1 " + std::to_string(response.status) + ' ';
  text += Reason(response.status);
  text += "\r\nDate: ";
  text += date;
  for (const HttpHeader& header : response.headers) {
    text += "\r\n" + header.name + ": " + header.value;
  }
  if (framing == HttpFraming::kChunked) {
    text += "\r\nTransfer-Encoding: chunked";
  } else if (framing == HttpFraming::kLength && response.status != 204) {
    text += "\r\nContent-Length: " + std::to_string(response.body.size());
  }
  text += close ? "\r\nConnection: close" : "\r\nConnection: keep-alive";
  text += "\r\n\r\n";
  return text;
}

std::string ChunkText(std::string_view bytes) {
  if (bytes.empty()) return "";
  char size[20];
  const char* end = std::to_chars(size, size + sizeof size, bytes.size(), 16).ptr;
  std::string text(static_cast<const char*>(size), end);
  text += "\r\n";
  text += bytes;
  text += "\r\n";
  return text;
}

std::string HttpDate(int64_t unix_seconds) {
  // strftime would print the names of the process's locale.
  constexpr std::array<const char*, 7> kDays = {"Sun", "Mon", "Tue", "Wed",
                                                "Thu", "Fri", "Sat"};
  constexpr std::array<const char*, 12> kMonths = {
      "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
  const std::time_t seconds = unix_seconds;
  std::tm t{};
  gmtime_r(&seconds, &t);
  char text[64];
  std::snprintf(text, sizeof text, "%s, %02d %s %04d %02d:%02d:%02d GMT",
                kDays[static_cast<size_t>(t.tm_wday)], t.tm_mday,
                kMonths[static_cast<size_t>(t.tm_mon)], t.tm_year + 1900, t.tm_hour,
                t.tm_min, t.tm_sec);
  return text;
}

std::optional<HttpTarget> ParseTarget(std::string_view target) {
  // The absolute form: "http://host/path".
  for (const std::string_view scheme : {"http://", "https://"}) {
    if (target.size() < scheme.size() ||
        !EqualsIgnoringCase(target.substr(0, scheme.size()), scheme)) {
      continue;
    }
    const size_t slash = target.find('/', scheme.size());
    target = slash == std::string_view::npos ? "/" : target.substr(slash);
    break;
  }
  if (target.empty() || (target[0] != '/' && target != "*")) return std::nullopt;
  const size_t mark = std::min(target.find('?'), target.size());
  std::optional<std::string> path = PercentDecode(target.substr(0, mark));
  const auto is_control = [](char c) {
    return static_cast<uint8_t>(c) < 0x20 || c == 0x7F;
  };
  if (!path || !IsUtf8(*path) || std::any_of(path->begin(), path->end(), is_control)) {
    return std::nullopt;
  }
  return HttpTarget{
      .path = *std::move(path),
      .query = std::string(target.substr(std::min(mark + 1, target.size())))};
}

}  // namespace renga
