// TextStage: the sink between the engine and a transport: tokens become text.
//
// What it passes on: whole UTF-8 characters, never any part of a stop string. It holds
// back the bytes of an unfinished character, and the longest suffix of the text that is a
// proper prefix of a stop string; the ids of held text travel with it. Every chunk that
// it passes on has text or ids; control tokens have ids alone.
//
// A stop string ends the request when the token that completes it arrives: of the matches
// in the text so far the one that starts first wins. The engine is told kStop, and the
// completion becomes kStop / kStopString. If the request ends in any other way, what was
// held is passed on before OnDone (unless the inner sink has already said kStop).
//
// Memory: the longest stop string, three bytes, and at most kMaxHeldTokens ids.
//
// Thread rule: that of TokenSink; no locks.

#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "renga/token_sink.h"
#include "renga/tokenizer.h"
#include "text/stop_matcher.h"
#include "text/stream_decoder.h"

namespace renga {

class TextStage final : public TokenSink {
 public:
  // More ids than this are passed on without waiting for their text (tokens without
  // bytes can follow each other for ever).
  static constexpr size_t kMaxHeldTokens = 4096;

  // `tokenizer` (and a borrowed `inner`) outlive this. Empty stop strings are ignored.
  TextStage(const Tokenizer& tokenizer, std::vector<std::string> stop, TokenSink& inner)
      : decoder_(tokenizer), stops_(std::move(stop)), inner_(inner) {}
  TextStage(const Tokenizer& tokenizer, std::vector<std::string> stop,
            std::unique_ptr<TokenSink> inner)
      : decoder_(tokenizer),
        stops_(std::move(stop)),
        owned_inner_(std::move(inner)),
        inner_(*owned_inner_) {}

  void OnStart(const StartInfo& info) override { inner_.OnStart(info); }
  SinkVerdict OnToken(const TokenChunk& chunk) override;
  void OnDone(const Completion& completion) override;

 private:
  // Looks for stop strings in the last `fresh` bytes of text_; true: one has matched, and
  // text_ ends before it.
  bool CutAtStop(size_t fresh);
  // Passes on all but the last `keep` bytes, and the ids if all of them are accounted
  // for.
  SinkVerdict PassOn(size_t keep, bool final);

  StreamDecoder decoder_;
  StopMatcher stops_;
  std::unique_ptr<TokenSink> owned_inner_;  // May be absent.
  TokenSink& inner_;
  std::string text_;             // Decoded and not passed on.
  std::vector<TokenId> tokens_;  // Ids not passed on.
  size_t passed_ = 0;            // Bytes of text passed on so far.
  int32_t choice_ = 0;
  std::string stop_text_;  // The stop string that matched; empty: none.
  bool inner_stopped_ = false;
};

}  // namespace renga
