// One request of a client and its answer: what stands between the HTTP server and those
// who answer.
//
// The server calls the handler with an exchange; the handler returns the responder that
// will hear of it (none if it has answered already). The answer is either one Respond, or
// BeginStream, any number of Writes, and EndStream.
//
// Thread rule: an exchange belongs to one event loop. The handler and all methods of the
// responder run on it, and so must every method of the exchange but Post, by which other
// threads get there. Nothing may block it.

#pragma once

#include <functional>
#include <memory>
#include <string>

#include "gateway/http_message.h"

namespace renga {

class HttpExchange {
 public:
  virtual ~HttpExchange() = default;

  virtual const HttpRequest& request() const = 0;
  // Not to be answered any more: it was, or the client has gone.
  virtual bool done() const = 0;

  // Runs `task` on the exchange's loop, later; from any thread.
  virtual void Post(std::function<void()> task) = 0;

  // The whole answer. Ignored if done().
  virtual void Respond(HttpResponse response) = 0;

  // The head of an answer that comes in pieces; `head.body` is not used. It leaves with
  // the first Write.
  virtual void BeginStream(HttpResponse head) = 0;
  // Sends `bytes`; REQUIRES: the last Write is done (OnWritten). Ignored if done().
  virtual void Write(std::string bytes) = 0;
  // After the last Write, which need not be done.
  virtual void EndStream() = 0;
};

class HttpResponder {
 public:
  virtual ~HttpResponder() = default;

  // The bytes of the last Write are with the kernel.
  virtual void OnWritten() {}
  // Nothing was sent for the server's quiet_interval.
  virtual void OnQuiet() {}
  // The server ends: answer now with what there is, or with an error.
  virtual void OnStop() {}
  // Last call: the client has gone, or reads too slowly. The exchange is done.
  virtual void OnClosed() {}
};

using HttpHandler =
    std::function<std::shared_ptr<HttpResponder>(std::shared_ptr<HttpExchange>)>;

}  // namespace renga
