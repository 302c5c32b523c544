// Beast parses, nothing more: reading and writing are a few plain operations here, so
// that one read is always under way and every progress is seen.

#include "gateway/server_connection.h"

#include <algorithm>
#include <boost/asio/post.hpp>
#include <boost/beast/http/rfc7230.hpp>
#include <chrono>
#include <utility>

namespace renga {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using boost::system::error_code;

constexpr size_t kReadBytes = 16 << 10;
// What a client may send ahead of its turn before it is no longer read.
constexpr size_t kMaxAheadBytes = 64 << 10;
// How long a closing connection is still read, so that its last answer is not lost by a
// reset.
constexpr auto kLingerTime = std::chrono::seconds(2);
constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";

TimePoint Now() { return std::chrono::steady_clock::now(); }

std::string DateNow() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return HttpDate(std::chrono::duration_cast<std::chrono::seconds>(now).count());
}

}  // namespace

// The one of the request at hand. When that is done it lets the connection go.
class ServerConnection::Exchange final : public HttpExchange {
 public:
  Exchange(std::shared_ptr<ServerConnection> connection, HttpRequest request)
      : loop_(connection->loop_),
        connection_(std::move(connection)),
        request_(std::move(request)) {}

  const HttpRequest& request() const override { return request_; }
  bool done() const override { return connection_ == nullptr; }
  void Post(std::function<void()> task) override { asio::post(loop_, std::move(task)); }
  void Respond(HttpResponse response) override {
    if (connection_ != nullptr && !connection_->streaming_ && !connection_->last_) {
      connection_->Send(response, request_.method == "HEAD");
    }
  }
  void BeginStream(HttpResponse head) override {
    if (connection_ != nullptr) connection_->BeginStream(head);
  }
  void Write(std::string bytes) override {
    if (connection_ != nullptr) connection_->Write(bytes);
  }
  void EndStream() override {
    if (connection_ != nullptr) connection_->EndStream();
  }
  void End() { connection_.reset(); }

 private:
  asio::io_context& loop_;
  std::shared_ptr<ServerConnection> connection_;
  const HttpRequest request_;
};

ServerConnection::ServerConnection(asio::io_context& loop, Socket socket,
                                   ConnectionContext& context,
                                   std::function<void()> on_closed)
    : loop_(loop),
      socket_(std::move(socket)),
      context_(context),
      on_closed_(std::move(on_closed)),
      buffer_(static_cast<size_t>(context.options.max_header_bytes) + kMaxAheadBytes),
      timer_(loop) {
  error_code ignored;  // A socket that is broken already fails its first read.
  socket_.non_blocking(true, ignored);
}

ServerConnection::~ServerConnection() = default;

void ServerConnection::Start() {
  SetDeadline(context_.options.idle_timeout);
  ReadMore();
}

void ServerConnection::StartRefused() {
  RefuseRequest(503, "too many connections; try again");
}

void ServerConnection::CloseIfIdle() {
  if (state_ == State::kReading && !parser_) Close();
}

void ServerConnection::StopExchange() {
  // The responder may end in its own call.
  if (const auto responder = responder_) responder->OnStop();
}

void ServerConnection::Close() {
  if (state_ == State::kClosed) return;
  if (state_ == State::kAnswering) return ClientGone();
  state_ = State::kClosed;
  error_code ignored;
  socket_.close(ignored);
  timer_.cancel();
  on_closed_();
}

// ---- Reading -------------------------------------------------------------------------

// Waits without a buffer: nothing is prepared in buffer_ while it is parsed.
void ServerConnection::ReadMore() {
  if (reading_ || state_ == State::kClosed) return;
  if (buffer_.size() == buffer_.max_size()) return;  // It has sent a lot ahead: it waits.
  reading_ = true;
  socket_.async_wait(Socket::wait_read, [self = shared_from_this()](error_code error) {
    self->OnReadable(error);
  });
}

void ServerConnection::OnReadable(error_code error) {
  reading_ = false;
  if (state_ == State::kClosed) return;
  size_t bytes = 0;
  if (!error) {
    const size_t room = std::min(kReadBytes, buffer_.max_size() - buffer_.size());
    bytes = socket_.read_some(buffer_.prepare(room), error);
  }
  if (error == asio::error::would_block || error == asio::error::try_again) {
    return ReadMore();
  }
  if (error) return Close();
  buffer_.commit(bytes);
  switch (state_) {
    case State::kReading:
      return Parse();
    case State::kLingering:
      buffer_.consume(buffer_.size());
      return ReadMore();
    case State::kAnswering:
      return ReadMore();
    case State::kClosed:
      return;
  }
}

// Goes on with the request at hand as far as the bytes reach.
void ServerConnection::Parse() {
  if (!parser_) {
    if (buffer_.size() == 0) {
      SetDeadline(context_.options.idle_timeout);
      return ReadMore();
    }
    parser_.emplace();
    parser_->header_limit(static_cast<uint32_t>(context_.options.max_header_bytes));
    parser_->body_limit(static_cast<uint64_t>(context_.options.max_body_bytes));
    header_accepted_ = false;
    header_bytes_ = 0;
    SetDeadline(context_.options.read_timeout);
  }
  bool needs_more = false;
  while (!parser_->is_done() && !needs_more) {
    if (!ParseSome(needs_more)) return;
  }
  if (parser_->is_done()) return Dispatch();
  ReadMore();
}

// One step; false if the request was refused.
bool ServerConnection::ParseSome(bool& needs_more) {
  if (buffer_.size() == 0) {
    needs_more = true;
    return true;
  }
  error_code error;
  const size_t used = parser_->put(buffer_.data(), error);
  buffer_.consume(used);
  if (!header_accepted_) header_bytes_ += used;
  if (error == http::error::need_more) {
    error = {};
    needs_more = true;
    if (buffer_.size() == buffer_.max_size()) error = http::error::header_limit;
  }
  // Beast's own limit is one of each piece that it parses.
  if (header_bytes_ > static_cast<size_t>(context_.options.max_header_bytes)) {
    error = http::error::header_limit;
  }
  if (error) {
    RefuseBroken(error);
    return false;
  }
  if (!header_accepted_ && parser_->is_header_done()) return AcceptHeader();
  return true;
}

bool ServerConnection::AcceptHeader() {
  header_accepted_ = true;
  http_1_0_ = parser_->get().version() == 10;
  std::string why;
  if (const int refused = CheckHeader(why); refused != 0) {
    RefuseRequest(refused, why);
    return false;
  }
  headers_.clear();
  for (const auto& field : parser_->get()) {
    headers_.push_back(
        {.name = std::string(field.name_string()), .value = std::string(field.value())});
  }
  keep_alive_ = parser_->keep_alive();
  parser_->eager(true);
  SendContinue();
  return state_ == State::kReading;
}

// The HTTP status that refuses the request; 0: it is sound.
int ServerConnection::CheckHeader(std::string& why) const {
  const auto& header = parser_->get();
  if (header.version() != 10 && header.version() != 11) {
    why = "only HTTP/1.0 and HTTP/1.1";
    return 505;
  }
  const size_t hosts = header.count(http::field::host);
  if (hosts > 1 || (hosts == 0 && !http_1_0_)) {
    why = "exactly one Host header is required";
    return 400;
  }
  // Beast takes "3, 3" for 3.
  const auto length = header[http::field::content_length];
  if (header.count(http::field::content_length) > 1 ||
      length.find_first_not_of("0123456789") != length.npos) {
    why = "Content-Length must stand once and be a number";
    return 400;
  }
  if (const size_t codings = header.count(http::field::transfer_encoding); codings > 0) {
    const auto coding = header[http::field::transfer_encoding];
    if (codings > 1 || http_1_0_ || header.count(http::field::content_length) > 0) {
      why = "Transfer-Encoding must stand once and alone";
      return 400;
    }
    if (!EqualsIgnoringCase({coding.data(), coding.size()}, "chunked")) {
      why = "the only Transfer-Encoding is chunked";
      return 501;
    }
  }
  if (header.count(http::field::content_encoding) > 0) {
    why = "Content-Encoding is not supported";
    return 415;
  }
  const auto expect = header[http::field::expect];
  if (!expect.empty() &&
      !EqualsIgnoringCase({expect.data(), expect.size()}, "100-continue")) {
    why = "the only expectation is 100-continue";
    return 417;
  }
  return 0;
}

// The client waits to be asked for the body.
void ServerConnection::SendContinue() {
  const bool expects = parser_->get().count(http::field::expect) > 0 && !http_1_0_;
  if (!expects || parser_->is_done() || buffer_.size() > 0) return;
  // All before it has been sent, so there is room for 25 bytes.
  error_code error;
  const size_t sent =
      socket_.write_some(asio::buffer(kContinue.data(), kContinue.size()), error);
  if (error || sent != kContinue.size()) Close();
}

void ServerConnection::Dispatch() {
  auto message = parser_->release();
  parser_.reset();
  const std::optional<HttpTarget> target =
      ParseTarget({message.target().data(), message.target().size()});
  if (!target) return RefuseRequest(400, "the path of the request is malformed");
  HttpRequest request{.method = std::string(message.method_string()),
                      .path = target->path,
                      .query = target->query,
                      .headers = std::exchange(headers_, {}),
                      .http_1_0 = http_1_0_};
  request.body = std::move(message.body());

  state_ = State::kAnswering;
  close_after_ = last_ = streaming_ = false;
  ClearDeadline();
  quiet_at_ = Now() + context_.options.quiet_interval;
  ArmTimer();
  context_.exchanges.Enter();
  request_at_ = Now();
  exchange_ = std::make_shared<Exchange>(shared_from_this(), std::move(request));
  const auto exchange = exchange_;
  std::shared_ptr<HttpResponder> responder = context_.handler(exchange);
  if (!exchange->done()) responder_ = std::move(responder);
  ReadMore();
}

void ServerConnection::RefuseRequest(int http_status, std::string_view why) {
  parser_.reset();
  state_ = State::kAnswering;
  close_after_ = true;
  last_ = streaming_ = false;
  quiet_at_ = TimePoint::max();
  request_at_ = Now();
  HttpResponse response = context_.options.refusal(http_status, why);
  response.close = true;
  Send(response, false);
}

void ServerConnection::RefuseBroken(error_code error) {
  if (error == http::error::body_limit) {
    return RefuseRequest(413, "the body is larger than " +
                                  std::to_string(context_.options.max_body_bytes) +
                                  " bytes");
  }
  if (error == http::error::header_limit || error == http::error::buffer_overflow) {
    return RefuseRequest(431, "the headers are larger than " +
                                  std::to_string(context_.options.max_header_bytes) +
                                  " bytes");
  }
  RefuseRequest(400, "malformed HTTP: " + error.message());
}

// ---- Writing -------------------------------------------------------------------------

bool ServerConnection::MustClose() const {
  return close_after_ || !keep_alive_ || context_.draining;
}

void ServerConnection::NoteHead(const HttpResponse& head, bool in_pieces) {
  status_ = head.status;
  in_pieces_ = in_pieces;
  for (const HttpHeader& header : head.headers) {
    if (header.name == "X-Request-Id") request_id_ = header.value;
  }
  if (in_pieces && context_.options.observer != nullptr) {
    context_.options.observer->OnStreams(1);
  }
}

// The answer at hand is over, one way or the other.
void ServerConnection::Report(bool complete) {
  if (request_at_ == TimePoint{}) return;  // There is none.
  const HttpAccess access{
      .request = exchange_ == nullptr ? nullptr : &exchange_->request(),
      .status = std::exchange(status_, 0),
      .elapsed = Now() - std::exchange(request_at_, TimePoint{}),
      .sent_bytes = std::exchange(sent_bytes_, 0),
      .complete = complete,
      .request_id = std::exchange(request_id_, {})};
  const bool in_pieces = std::exchange(in_pieces_, false);
  if (context_.options.observer == nullptr) return;
  if (in_pieces) context_.options.observer->OnStreams(-1);
  context_.options.observer->OnEnd(access);
}

void ServerConnection::Send(const HttpResponse& response, bool head_only) {
  NoteHead(response, false);
  if (response.close) close_after_ = true;
  close_after_ = MustClose();
  queued_ += HeadText(response, HttpFraming::kLength, close_after_, DateNow());
  if (!head_only) queued_ += response.body;
  last_ = true;
  WriteSome();
}

void ServerConnection::BeginStream(const HttpResponse& head) {
  if (streaming_ || last_) return;
  framing_ = http_1_0_ ? HttpFraming::kClose : HttpFraming::kChunked;
  if (framing_ == HttpFraming::kClose) close_after_ = true;
  close_after_ = MustClose();
  NoteHead(head, true);
  queued_ += HeadText(head, framing_, close_after_, DateNow());
  streaming_ = true;
}

void ServerConnection::Write(const std::string& bytes) {
  if (!streaming_) return;
  queued_ += framing_ == HttpFraming::kChunked ? ChunkText(bytes) : bytes;
  WriteSome();
}

void ServerConnection::EndStream() {
  if (!streaming_) return;
  if (framing_ == HttpFraming::kChunked) queued_ += kLastChunk;
  streaming_ = false;
  last_ = true;
  WriteSome();
}

void ServerConnection::WriteSome() {
  if (writing_ || state_ != State::kAnswering) return;
  if (written_ == out_.size()) {
    out_ = std::exchange(queued_, {});
    written_ = 0;
  }
  writing_ = true;
  quiet_at_ = TimePoint::max();
  SetDeadline(context_.options.write_timeout);
  socket_.async_write_some(asio::buffer(out_.data() + written_, out_.size() - written_),
                           [self = shared_from_this()](error_code error, size_t bytes) {
                             self->OnWrote(error, bytes);
                           });
}

void ServerConnection::OnWrote(error_code error, size_t bytes) {
  writing_ = false;
  if (state_ != State::kAnswering) return;
  if (error) return Close();
  written_ += bytes;
  sent_bytes_ += static_cast<int64_t>(bytes);
  if (written_ < out_.size() || !queued_.empty()) return WriteSome();
  ClearDeadline();
  if (last_) return FinishExchange();
  quiet_at_ = Now() + context_.options.quiet_interval;
  ArmTimer();
  if (const auto responder = responder_) responder->OnWritten();
}

void ServerConnection::FinishExchange() {
  Report(true);
  if (exchange_ != nullptr) {
    exchange_->End();
    context_.exchanges.Leave();
  }
  exchange_.reset();
  responder_.reset();
  quiet_at_ = TimePoint::max();
  if (close_after_ || context_.draining) return Linger();
  state_ = State::kReading;
  Parse();
}

void ServerConnection::Linger() {
  state_ = State::kLingering;
  error_code error;
  socket_.shutdown(Socket::shutdown_send, error);
  if (error) return Close();
  buffer_.consume(buffer_.size());
  SetDeadline(kLingerTime);
  ReadMore();
}

// Ends the request at hand without an answer.
void ServerConnection::ClientGone() {
  state_ = State::kReading;  // For Close: no exchange any more.
  Report(false);
  if (exchange_ != nullptr) {
    exchange_->End();
    context_.exchanges.Leave();
  }
  exchange_.reset();
  if (const auto responder = std::exchange(responder_, nullptr)) responder->OnClosed();
  Close();
}

// ---- Time ----------------------------------------------------------------------------

void ServerConnection::SetDeadline(Duration from_now) {
  deadline_ = Now() + from_now;
  ArmTimer();
}

// The timer is moved only to an earlier time; one that comes too early looks again.
void ServerConnection::ArmTimer() {
  const TimePoint next = std::min(deadline_, quiet_at_);
  if (next == TimePoint::max() || state_ == State::kClosed) return;
  if (timer_armed_ && timer_.expiry() <= next) return;
  timer_armed_ = true;
  timer_.expires_at(next);  // Ends a wait before it with an error.
  timer_.async_wait([self = shared_from_this()](error_code error) {
    if (!error) self->OnTimer();
  });
}

void ServerConnection::OnTimer() {
  timer_armed_ = false;
  if (state_ == State::kClosed) return;
  const TimePoint now = Now();
  if (now >= deadline_) return OnDeadline();
  if (now >= quiet_at_) {
    quiet_at_ = now + context_.options.quiet_interval;
    if (const auto responder = responder_) responder->OnQuiet();
  }
  ArmTimer();
}

void ServerConnection::OnDeadline() {
  ClearDeadline();
  if (state_ == State::kReading && parser_) {
    return RefuseRequest(408, "the request did not come in time");
  }
  Close();
}

}  // namespace renga
