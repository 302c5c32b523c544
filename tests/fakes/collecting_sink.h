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
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "renga/token_sink.h"

namespace renga {

class CollectingSink final : public TokenSink {
 public:
  // The verdict after the n-th token of a choice, n from 1.
  using ChoiceScript =
      std::function<SinkVerdict(int32_t choice, int64_t n, TokenId token)>;
  using Script = std::function<SinkVerdict(int64_t n, TokenId token)>;

  CollectingSink() = default;
  explicit CollectingSink(Script script) {
    if (!script) return;
    script_ = [script = std::move(script)](int32_t, int64_t n, TokenId token) {
      return script(n, token);
    };
  }
  explicit CollectingSink(ChoiceScript script) : script_(std::move(script)) {}

  void OnStart(const StartInfo& info) override {
    EXPECT_EQ(starts_, 0) << "OnStart twice";
    EXPECT_FALSE(done()) << "OnStart after OnDone";
    ++starts_;
    start_ = info;
    prompt_.assign(info.prompt.begin(), info.prompt.end());
    prompt_logprobs_.assign(info.prompt_logprobs.begin(), info.prompt_logprobs.end());
    start_.prompt = {};
    start_.prompt_logprobs = {};
  }

  SinkVerdict OnToken(const TokenChunk& chunk) override {
    EXPECT_EQ(starts_, 1) << "OnToken before OnStart";
    EXPECT_FALSE(done()) << "OnToken after OnDone";
    EXPECT_TRUE(chunk.logprobs.empty() || chunk.logprobs.size() == chunk.tokens.size());
    Choice& choice = At(chunk.choice);
    EXPECT_FALSE(choice.stopped) << "OnToken after kStop";
    EXPECT_FALSE(choice.ended) << "OnToken after OnChoiceEnd";
    SinkVerdict verdict = SinkVerdict::kContinue;
    for (const TokenId token : chunk.tokens) {
      choice.tokens.push_back(token);
      text_ += chunk.text;
      if (!script_) continue;
      verdict = script_(chunk.choice, static_cast<int64_t>(choice.tokens.size()), token);
    }
    choice.logprobs.insert(choice.logprobs.end(), chunk.logprobs.begin(),
                           chunk.logprobs.end());
    choice.stopped = verdict == SinkVerdict::kStop;
    return verdict;
  }

  void OnChoiceEnd(const ChoiceEnd& end) override {
    EXPECT_FALSE(done()) << "OnChoiceEnd after OnDone";
    EXPECT_FALSE(std::exchange(At(end.choice).ended, true)) << "OnChoiceEnd twice";
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

  const std::vector<TokenId>& tokens(int32_t choice = 0) const {
    static const std::vector<TokenId> none;
    const size_t index = static_cast<size_t>(choice);
    return index < choices_.size() ? choices_[index].tokens : none;
  }
  // [tokens of the choice], or empty: not asked for.
  const std::vector<TokenLogprob>& logprobs(int32_t choice = 0) const {
    static const std::vector<TokenLogprob> none;
    const size_t index = static_cast<size_t>(choice);
    return index < choices_.size() ? choices_[index].logprobs : none;
  }
  const std::string& text() const { return text_; }
  // Its spans are empty: see prompt() and prompt_logprobs().
  const StartInfo& start() const { return start_; }
  const std::vector<TokenId>& prompt() const { return prompt_; }
  const std::vector<TokenLogprob>& prompt_logprobs() const { return prompt_logprobs_; }
  // In the order in which they came.
  const std::vector<ChoiceEnd>& ends() const { return ends_; }
  int starts() const { return starts_; }

 private:
  struct Choice {
    std::vector<TokenId> tokens;
    std::vector<TokenLogprob> logprobs;
    bool stopped = false;
    bool ended = false;
  };

  Choice& At(int32_t choice) {
    const size_t index = static_cast<size_t>(choice);
    if (index >= choices_.size()) choices_.resize(index + 1);
    return choices_[index];
  }

  ChoiceScript script_;
  std::vector<Choice> choices_;
  std::string text_;
  std::vector<TokenId> prompt_;
  std::vector<TokenLogprob> prompt_logprobs_;
  std::vector<ChoiceEnd> ends_;
  StartInfo start_;
  int starts_ = 0;

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
