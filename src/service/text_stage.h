// TextStage: the sink between the engine and a transport: tokens become text.
//
// Each choice of a request has a text of its own. What is passed on: whole UTF-8
// characters, never any part of a stop string. Held back are the bytes of an unfinished
// character, and the longest suffix of the text that is a proper prefix of a stop string;
// the ids of held text, and their log-probabilities, travel with it. Every chunk that is
// passed on has text or ids; control tokens have ids alone. Nothing that the engine gave
// is lost, but text from a stop string on: there is one id, and if asked for one
// log-probability, for every token.
//
// A stop string ends its choice when the token that completes it arrives: of the matches
// in the text so far the one that starts first wins. The engine is told kStop, and the
// choice's end becomes kStop / kStopString; the completion has choice 0's. A match that
// is completed by one of the first `min_tokens` tokens does not count; one that they
// begin does. When a choice ends in any other way, also by a failure or a cancel, what it
// held is passed on first (unless the inner sink has already said kStop for it).
//
// Memory: per choice the longest stop string, three bytes, and at most kMaxHeldTokens
// ids. Buffers keep their size, so in the long run nothing is allocated per token.
//
// Thread rule: that of TokenSink; no locks.

#pragma once

#include <memory>
#include <string>
#include <vector>

#include "renga/token_sink.h"
#include "renga/tokenizer.h"
#include "text/stop_matcher.h"
#include "text/stream_decoder.h"

namespace renga {

struct TextStageOptions {
  std::vector<std::string> stop{};  // Empty ones are ignored.
  int32_t n = 1;                    // Choices.
  int64_t min_tokens = 0;           // Of each choice, before a stop string can end it.
  std::string prompt_text{};        // What StartInfo says where the prompt is wanted.
};

class TextStage final : public TokenSink {
 public:
  // More ids than this are passed on without waiting for their text (tokens without
  // bytes can follow each other for ever).
  static constexpr size_t kMaxHeldTokens = 4096;

  // `tokenizer` (and a borrowed `inner`) outlive this.
  TextStage(const Tokenizer& tokenizer, TextStageOptions options, TokenSink& inner);
  TextStage(const Tokenizer& tokenizer, TextStageOptions options,
            std::unique_ptr<TokenSink> inner);

  void OnStart(const StartInfo& info) override;
  SinkVerdict OnToken(const TokenChunk& chunk) override;
  void OnChoiceEnd(const ChoiceEnd& end) override;
  void OnDone(const Completion& completion) override;

 private:
  struct Choice {
    Choice(const Tokenizer& tokenizer, const StopMatcher& matcher)
        : decoder(tokenizer), stops(matcher) {}

    StreamDecoder decoder;
    StopMatcher stops;
    std::string text;                    // Decoded and not passed on.
    std::vector<TokenId> tokens;         // Ids not passed on.
    std::vector<TokenLogprob> logprobs;  // The first tokens.size() belong to these.
    bool has_logprobs = false;           // They were asked for.
    size_t passed = 0;                   // Bytes of text passed on so far.
    int64_t sampled = 0;                 // Tokens so far.
    bool closed = false;                 // Nothing more is passed on.
    std::string stop_text;               // The stop string that matched; empty: none.
  };

  Choice& At(int32_t choice);
  void Hold(Choice& choice, TokenId token, const TokenLogprob* logprob);
  // Looks for stop strings in the last `fresh` bytes of the text; true: one has matched,
  // and the text ends before it.
  bool CutAtStop(Choice& choice, size_t fresh);
  // Passes on all but the last `keep` bytes, and the ids if all of them are accounted
  // for; `last`: of this choice.
  SinkVerdict PassOn(Choice& choice, size_t keep, bool last);
  // Passes on what is held, if anything may be.
  void Close(Choice& choice);

  std::unique_ptr<TokenSink> owned_inner_;  // May be absent.
  TokenSink& inner_;
  std::string prompt_text_;  // Empty after OnStart.
  const int64_t min_tokens_;
  std::vector<Choice> choices_;
};

}  // namespace renga
