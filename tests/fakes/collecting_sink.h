// CollectingSink: a TokenSink that keeps what it was told, checks the order of the calls
// and answers with what a test's script says. The engine owns a ForwardingSink; the test
// owns the CollectingSink and reads it when the request is done.
//
// Thread safety: the calls come from the engine thread; WaitDone and done() from any
// thread; the other readers after WaitDone.

#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "renga/token_sink.h"

namespace renga {

class CollectingSink final : public TokenSink {
 public:
  // The verdict after the n-th token, n from 1.
  using Script = std::function<SinkVerdict(int64_t n, TokenId token)>;

  CollectingSink() = default;
  explicit CollectingSink(Script script) : script_(std::move(script)) {}

  void OnStart(const StartInfo& info) override {
    EXPECT_EQ(starts_, 0) << "OnStart twice";
    EXPECT_FALSE(done()) << "OnStart after OnDone";
    ++starts_;
    start_ = info;
  }

  SinkVerdict OnToken(const TokenChunk& chunk) override {
    EXPECT_EQ(starts_, 1) << "OnToken before OnStart";
    EXPECT_FALSE(done()) << "OnToken after OnDone";
    EXPECT_FALSE(stopped_) << "OnToken after kStop";
    SinkVerdict verdict = SinkVerdict::kContinue;
    for (const TokenId token : chunk.tokens) {
      tokens_.push_back(token);
      text_ += chunk.text;
      if (script_) verdict = script_(static_cast<int64_t>(tokens_.size()), token);
    }
    stopped_ = verdict == SinkVerdict::kStop;
    return verdict;
  }

  void OnChoiceEnd(const ChoiceEnd& end) override {
    EXPECT_FALSE(done()) << "OnChoiceEnd after OnDone";
    ends_.push_back(end);
  }

  void OnDone(const Completion& completion) override {
    MutexLock lock(mutex_);
    EXPECT_EQ(dones_, 0) << "OnDone twice";
    ++dones_;
    completion_ = completion;
    changed_.NotifyAll();
  }

  void WaitDone() RENGA_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    while (dones_ == 0) changed_.Wait(mutex_);
  }
  bool done() const RENGA_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    return dones_ > 0;
  }
  Completion completion() const RENGA_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    return completion_;
  }

  const std::vector<TokenId>& tokens() const { return tokens_; }
  const std::string& text() const { return text_; }
  const StartInfo& start() const { return start_; }
  const std::vector<ChoiceEnd>& ends() const { return ends_; }
  int starts() const { return starts_; }

 private:
  const Script script_;
  std::vector<TokenId> tokens_;
  std::string text_;
  std::vector<ChoiceEnd> ends_;
  StartInfo start_;
  int starts_ = 0;
  bool stopped_ = false;

  mutable Mutex mutex_;
  CondVar changed_;
  int dones_ RENGA_GUARDED_BY(mutex_) = 0;
  Completion completion_ RENGA_GUARDED_BY(mutex_);
};

// What the engine may own while the test keeps the sink itself.
class ForwardingSink final : public TokenSink {
 public:
  explicit ForwardingSink(TokenSink& to) : to_(to) {}
  void OnStart(const StartInfo& info) override { to_.OnStart(info); }
  SinkVerdict OnToken(const TokenChunk& chunk) override { return to_.OnToken(chunk); }
  void OnChoiceEnd(const ChoiceEnd& end) override { to_.OnChoiceEnd(end); }
  void OnDone(const Completion& completion) override { to_.OnDone(completion); }

 private:
  TokenSink& to_;
};

}  // namespace renga
