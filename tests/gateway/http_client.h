// HttpClient: reads answers of an HTTP server piece by piece, on a plain socket.
//
// Thread safety: none.

#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <boost/json/parse.hpp>
#include <boost/json/value.hpp>
#include <optional>
#include <string>
#include <vector>

namespace renga {

struct HttpReply {
  int status = 0;
  std::string head;  // Status line and headers.
  std::string body;  // Chunks joined.

  boost::json::value Json() const {
    boost::json::error_code error;
    boost::json::value value = boost::json::parse(body, error);
    EXPECT_FALSE(error) << body;
    return value;
  }
  // The value of a header, spelled as the server spells it; "" without one.
  std::string Header(const std::string& name) const {
    const size_t at = head.find("\r\n" + name + ": ");
    if (at == std::string::npos) return "";
    const size_t begin = at + name.size() + 4;
    return head.substr(begin, head.find("\r\n", begin) - begin);
  }
};

class HttpClient {
 public:
  // `receive_buffer`: bytes, 0 as the system has it.
  explicit HttpClient(const std::string& address, int receive_buffer = 0) {
    sockaddr_in to{};
    to.sin_family = AF_INET;
    const size_t colon = address.rfind(':');
    to.sin_port = htons(static_cast<uint16_t>(std::stoi(address.substr(colon + 1))));
    inet_pton(AF_INET, address.substr(0, colon).c_str(), &to.sin_addr);
    socket_ = socket(AF_INET, SOCK_STREAM, 0);
    if (receive_buffer > 0) {
      setsockopt(socket_, SOL_SOCKET, SO_RCVBUF, &receive_buffer, sizeof receive_buffer);
    }
    EXPECT_EQ(connect(socket_, reinterpret_cast<sockaddr*>(&to), sizeof to), 0);
  }
  ~HttpClient() { Close(); }
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  void Close() {
    if (socket_ >= 0) close(socket_);
    socket_ = -1;
  }
  // As a process that dies does.
  void Reset() {
    const linger hard{.l_onoff = 1, .l_linger = 0};
    setsockopt(socket_, SOL_SOCKET, SO_LINGER, &hard, sizeof hard);
    Close();
  }

  // False: the server has had enough.
  bool Send(const std::string& bytes) {
    for (size_t sent = 0; sent < bytes.size();) {
      const ssize_t n =
          send(socket_, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
      if (n <= 0) return false;
      sent += static_cast<size_t>(n);
    }
    return true;
  }

  // A request with a body of JSON; `headers` are whole lines.
  bool Post(const std::string& path, const std::string& body,
            const std::string& headers = "") {
    return Send("POST " + path +
                " HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n" + headers +
                "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body);
  }
  bool Get(const std::string& path, const std::string& headers = "",
           const std::string& method = "GET") {
    return Send(method + ' ' + path + " HTTP/1.1\r\nHost: x\r\n" + headers + "\r\n");
  }

  // Up to and with `end`; less if the server closes.
  std::string ReadUntil(const std::string& end) {
    size_t at = 0;
    while ((at = buffer_.find(end)) == std::string::npos) {
      if (!Fill()) return std::exchange(buffer_, {});
    }
    std::string text = buffer_.substr(0, at + end.size());
    buffer_.erase(0, at + end.size());
    return text;
  }
  std::string ReadBytes(size_t count) {
    while (buffer_.size() < count && Fill()) {
    }
    std::string text = buffer_.substr(0, count);
    buffer_.erase(0, count);
    return text;
  }
  std::string ReadToEnd() {
    while (Fill()) {
    }
    return std::exchange(buffer_, {});
  }
  bool AtEnd() { return buffer_.empty() && !Fill(); }

  // Status line and headers of the next answer.
  HttpReply ReadHead() {
    HttpReply reply{.status = 0, .head = ReadUntil("\r\n\r\n"), .body = ""};
    if (reply.head.starts_with("HTTP/1.1 ")) {
      reply.status = std::stoi(reply.head.substr(9, 3));
    }
    return reply;
  }
  // The next piece of a chunked body; none at its end.
  std::optional<std::string> ReadChunk() {
    const std::string size = ReadUntil("\r\n");
    if (size.empty()) return std::nullopt;
    const size_t bytes = std::stoul(size, nullptr, 16);
    std::string chunk = ReadBytes(bytes);
    EXPECT_EQ(ReadUntil("\r\n"), "\r\n");
    if (bytes == 0) return std::nullopt;
    return chunk;
  }
  HttpReply ReadReply(bool head_only = false) {
    HttpReply reply = ReadHead();
    if (head_only) return reply;
    if (reply.Header("Transfer-Encoding") == "chunked") {
      while (const auto chunk = ReadChunk()) reply.body += *chunk;
    } else if (const std::string length = reply.Header("Content-Length");
               !length.empty()) {
      reply.body = ReadBytes(std::stoul(length));
    }
    return reply;
  }

 private:
  bool Fill() {
    char part[4096];
    const ssize_t n = recv(socket_, part, sizeof part, 0);
    if (n <= 0) return false;
    buffer_.append(part, static_cast<size_t>(n));
    return true;
  }

  int socket_ = -1;
  std::string buffer_;
};

// The data of each event; comments are left out.
inline std::vector<std::string> SseData(const std::string& body) {
  std::vector<std::string> events;
  for (size_t at = 0; at < body.size();) {
    const size_t end = std::min(body.find("\n\n", at), body.size());
    const std::string line = body.substr(at, end - at);
    if (line.starts_with("data: ")) events.push_back(line.substr(6));
    at = end + 2;
  }
  return events;
}

}  // namespace renga
