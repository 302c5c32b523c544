// HttpConnection: the client's end of one HTTP connection, on plain sockets, so that
// tests can also send what no HTTP library would.
//
// Thread safety: none.

#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>

namespace renga {

class HttpConnection {
 public:
  explicit HttpConnection(const std::string& address) {
    sockaddr_in to{};
    to.sin_family = AF_INET;
    const size_t colon = address.rfind(':');
    to.sin_port = htons(static_cast<uint16_t>(std::stoi(address.substr(colon + 1))));
    inet_pton(AF_INET, address.substr(0, colon).c_str(), &to.sin_addr);
    socket_ = socket(AF_INET, SOCK_STREAM, 0);
    EXPECT_EQ(connect(socket_, reinterpret_cast<sockaddr*>(&to), sizeof to), 0);
  }
  ~HttpConnection() { close(socket_); }

  void Send(const std::string& bytes) {
    size_t sent = 0;
    while (sent < bytes.size()) {
      const ssize_t n =
          send(socket_, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
      if (n <= 0) return;  // The server has had enough.
      sent += static_cast<size_t>(n);
    }
  }
  std::string ReadToEnd() {
    std::string all;
    char part[4096];
    for (ssize_t n; (n = recv(socket_, part, sizeof part, 0)) > 0;) {
      all.append(part, static_cast<size_t>(n));
    }
    return all;
  }
  // One response with a Content-Length; what follows stays unread.
  std::string ReadResponse() {
    std::string all;
    for (char c; recv(socket_, &c, 1, 0) == 1;) {
      all += c;
      if (all.ends_with("\r\n\r\n")) break;
    }
    const size_t at = all.find("Content-Length: ");
    size_t left = at == std::string::npos ? 0 : std::stoul(all.substr(at + 16));
    for (char c; left > 0 && recv(socket_, &c, 1, 0) == 1; --left) all += c;
    return all;
  }

 private:
  int socket_ = -1;
};

// The whole response to one GET: status line, headers and body.
inline std::string HttpGet(const std::string& address, const std::string& path) {
  HttpConnection connection(address);
  connection.Send("GET " + path + " HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
  return connection.ReadToEnd();
}

}  // namespace renga
