// GenerationService: all that a transport may call.
//
// Thread safety: every method may be called from any thread.

#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "renga/request.h"
#include "renga/status.h"
#include "renga/token_sink.h"

namespace renga {

struct ModelInfo {
  std::string name;
  std::string architecture;
  int64_t context_length = 0;  // Tokens of prompt and answer together.
  int64_t vocab_size = 0;
  bool has_chat_template = false;
  std::string backend;      // "cpu/avx512": device and instruction set.
  std::string numerics_id;  // Equal ids promise equal bits.
  std::vector<TokenId> end_token_ids;
  TokenId bos_token_id = -1;  // -1: none.
};

// How busy the server is now, for balancers and for clients that choose.
struct LoadInfo {
  bool ready = false;
  int64_t running = 0;         // Sequences in the engine.
  int64_t waiting = 0;         // Requests that wait for the engine...
  int64_t waiting_tokens = 0;  // ... and their prompt tokens.
  int64_t max_sequences = 0;
  int64_t max_waiting = 0;
  int64_t max_waiting_tokens = 0;
  int64_t pages_total = 0;
  int64_t pages_free = 0;
  int64_t pages_cached = 0;  // Reusable prefixes that give way when pages are needed.
  double busy_share = 0.0;   // Of the last seconds, that the engine was computing.
  // Predicted from now to the first token of a prompt of 64 tokens that is not cached.
  Duration predicted_first_token{};
};

class GenerationService {
 public:
  virtual ~GenerationService() = default;

  virtual RequestId NewRequestId() = 0;

  // Starts a request; `sink` must live until its OnDone, which comes exactly once, maybe
  // before this returns. Errors come through OnDone as well.
  virtual void Generate(GenerateRequest request, TokenSink& sink) = 0;

  // Continues a request whose sink said kPause. Unknown ids are ignored.
  virtual void Resume(RequestId id) = 0;

  // Ends a request at the next step border with CANCELLED. Unknown ids are ignored.
  virtual void Cancel(RequestId id) = 0;

  // Ids of a prompt, exactly as Generate would compute them.
  virtual StatusOr<std::vector<TokenId>> Tokenize(const PromptInput& prompt) = 0;
  // Text of the ids; bytes that are not UTF-8 become U+FFFD.
  virtual StatusOr<std::string> Detokenize(const std::vector<TokenId>& ids) = 0;
  // The bytes that a token stands for; empty for control tokens. REQUIRES: a valid id.
  virtual std::string_view TokenBytes(TokenId id) = 0;
  virtual ModelInfo GetModel() = 0;
  virtual LoadInfo GetLoad() = 0;

  // True while a request sent now would be served; not while it loads, drains or has
  // stalled.
  virtual bool Ready() = 0;
};

}  // namespace renga
