// ServerConnection: one client's connection to the HTTP server.
//
// It reads a request, hands it to the handler as an exchange, writes the answer, and
// begins again; a second request that comes early waits its turn. While a request is
// being answered it goes on reading, so that it hears at once when the client has gone (a
// client that closes its sending side counts as gone).
//
// Limits: headers 16 KiB, bodies `max_body_bytes`; a request must come within
// `read_timeout`, a connection without one is closed after `idle_timeout`; a client that
// takes no byte for `write_timeout` is cut. What can't be read for sure (two lengths, a
// length beside chunks, an unknown transfer coding, no or two hosts) is refused, and
// after any refusal of that kind the connection closes: what follows is never taken for a
// request.
//
// Thread rule: everything runs on the loop of the socket.

#pragma once

#include <atomic>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gateway/activity_count.h"
#include "gateway/http_exchange.h"
#include "gateway/http_server.h"

namespace renga {

// What all connections of a server share. It outlives them.
struct ConnectionContext {
  const HttpServerOptions& options;
  const HttpHandler& handler;
  std::atomic<bool> draining{false};
  ActivityCount exchanges{};  // Under way.
};

class ServerConnection final : public std::enable_shared_from_this<ServerConnection> {
 public:
  using Socket = boost::asio::ip::tcp::socket;

  ServerConnection(boost::asio::io_context& loop, Socket socket,
                   ConnectionContext& context, std::function<void()> on_closed);
  ~ServerConnection();

  // Reads the first request.
  void Start();
  // Refuses this client: there are too many.
  void StartRefused();
  // Draining: closes the connection if no request is under way.
  void CloseIfIdle();
  // Tells the responder that the server ends.
  void StopExchange();
  void Close();

 private:
  class Exchange;
  using Parser = boost::beast::http::request_parser<boost::beast::http::string_body>;
  enum class State { kReading, kAnswering, kLingering, kClosed };

  // Reading.
  void ReadMore();
  void OnReadable(boost::system::error_code error);
  void Parse();
  bool ParseSome(bool& needs_more);
  bool AcceptHeader();
  int CheckHeader(std::string& why) const;
  void SendContinue();
  void Dispatch();
  // Answers what never became an exchange, and closes.
  void RefuseRequest(int http_status, std::string_view why);
  void RefuseBroken(boost::system::error_code error);

  // Writing.
  void NoteHead(const HttpResponse& head, bool in_pieces);
  void Send(const HttpResponse& response, bool head_only);
  void BeginStream(const HttpResponse& head);
  void Write(const std::string& bytes);
  void EndStream();
  void WriteSome();
  void OnWrote(boost::system::error_code error, size_t bytes);
  void FinishExchange();
  void Report(bool complete);
  void Linger();
  void ClientGone();
  bool MustClose() const;

  // Time.
  void SetDeadline(Duration from_now);
  void ClearDeadline() { deadline_ = TimePoint::max(); }
  void ArmTimer();
  void OnTimer();
  void OnDeadline();

  boost::asio::io_context& loop_;
  Socket socket_;
  ConnectionContext& context_;
  const std::function<void()> on_closed_;

  State state_ = State::kReading;
  boost::beast::flat_buffer buffer_;
  bool reading_ = false;  // Waits for more.
  std::optional<Parser> parser_;
  size_t header_bytes_ = 0;  // Of the request at hand, as far as they were parsed.
  bool header_accepted_ = false;
  // What the client sent before the body: trailers are not taken for headers.
  std::vector<HttpHeader> headers_;
  bool keep_alive_ = false;  // The client's wish for the request at hand.
  bool http_1_0_ = false;

  std::string queued_;  // To be written after out_.
  std::string out_;     // Being written: not touched meanwhile.
  size_t written_ = 0;  // Of out_.
  bool writing_ = false;
  bool streaming_ = false;  // Between BeginStream and EndStream.
  bool last_ = false;       // With what is in queued_ the answer is complete.
  HttpFraming framing_ = HttpFraming::kLength;
  bool close_after_ = false;

  // For the observer: of the answer at hand.
  TimePoint request_at_{};
  int status_ = 0;
  bool in_pieces_ = false;
  int64_t sent_bytes_ = 0;
  std::string request_id_;

  std::shared_ptr<Exchange> exchange_;
  std::shared_ptr<HttpResponder> responder_;

  boost::asio::steady_timer timer_;
  bool timer_armed_ = false;
  TimePoint deadline_ = TimePoint::max();
  TimePoint quiet_at_ = TimePoint::max();
};

}  // namespace renga
