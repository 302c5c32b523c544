// Requests and responses of HTTP/1.1 as plain data, and their text.
//
// Thread safety: plain values and pure functions.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace renga {

struct HttpHeader {
  std::string name;
  std::string value;
};

struct HttpRequest {
  std::string method;  // "GET"
  std::string path;    // Without the query, percent-encoding undone: "/v1/models/a b".
  std::string query;   // As it came, without "?".
  std::vector<HttpHeader> headers{};  // As they came.
  std::string body{};
  bool http_1_0 = false;

  // The first header of that name, whatever its case; nullptr without one.
  const std::string* Header(std::string_view name) const;
  size_t HeaderCount(std::string_view name) const;
};

struct HttpResponse {
  int status = 200;
  std::vector<HttpHeader> headers{};
  std::string body{};
  bool close = false;  // Close the connection afterwards, whatever the client wants.

  // Adds a header, or replaces the one of that name.
  void Set(std::string_view name, std::string value);
};

// How the end of the body is told.
enum class HttpFraming {
  kLength,   // Content-Length: the whole body is there.
  kChunked,  // Pieces follow, each by ChunkText, the last by kLastChunk.
  kClose,    // Pieces follow as they are; the connection closes behind them.
};

inline constexpr std::string_view kLastChunk = "0\r\n\r\n";

// Status line and headers, with those that belong to the connection. `date` is the text
// of the Date header.
std::string HeadText(const HttpResponse& response, HttpFraming framing, bool close,
                     std::string_view date);
// One piece of a chunked body; of nothing, nothing.
std::string ChunkText(std::string_view bytes);

// "Sun, 06 Nov 1994 08:49:37 GMT".
std::string HttpDate(int64_t unix_seconds);

// Path and query of a request's target; none if it is malformed: no path, a broken
// percent-encoding, a NUL, a control character or bytes that are not UTF-8.
struct HttpTarget {
  std::string path;
  std::string query;
};
std::optional<HttpTarget> ParseTarget(std::string_view target);

bool EqualsIgnoringCase(std::string_view a, std::string_view b);

}  // namespace renga
