// `renga chat`: a conversation in the terminal, with a running server or with a model
// that is loaded for it.
//
// Thread rule: one thread calls. A terminal's Ctrl-C is taken over until it returns.

#pragma once

#include <iosfwd>
#include <string>

#include "renga/config.h"

namespace renga {

struct ChatOptions {
  std::string target;    // "host:port" of a server; empty: config.model.path is loaded.
  std::string key_file;  // The key is on its first line; empty: none is sent.
  std::string system;    // The system prompt; empty: none.
};

// Reads messages from standard input, a line each, and prints the answers. Returns the
// exit code: 0 the input has ended; 1 a server could not be reached or started, or, where
// the input is no terminal, a message failed; 2 a setting is missing or wrong.
int RunChat(const Config& config, const ChatOptions& options);

}  // namespace renga
