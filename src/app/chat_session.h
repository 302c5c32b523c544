// ChatSession: the conversation of `renga chat`, and what a typed line means for it.
//
// A line that begins with / is a command (// is a message that begins with /), any other
// a message. A message that was not answered is not part of the history; what came of an
// answer that was stopped is.
//
// Thread safety: none.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "renga/status.h"
#include "renga/v1/inference.pb.h"

namespace renga {

class ChatSession {
 public:
  struct Message {
    std::string role;  // "user" or "assistant".
    std::string text;
    bool operator==(const Message&) const = default;
  };

  // What is to be done about a line.
  struct Action {
    enum class Kind : uint8_t {
      kNothing,
      kAsk,   // Send Request().
      kSay,   // Print `text`.
      kFail,  // Print `text`: the command was wrong.
      kSave,  // Write ToJson() to the file `text`.
      kLoad,  // FromJson() of the file `text`.
      kQuit
    };
    Kind kind = Kind::kNothing;
    std::string text{};
  };

  explicit ChatSession(std::string system = "") : system_(std::move(system)) {}

  Action Enter(std::string_view line);

  // The question that was asked, with all before it.
  v1::GenerateRequest Request() const;
  // REQUIRES: something was asked. `answer` may be a part of one.
  void Answered(std::string answer);
  void NotAnswered();

  // {"messages": [{"role": ..., "content": ...}]}, the system prompt first.
  std::string ToJson() const;
  // Replaces system prompt and history; on an error nothing changes.
  Status FromJson(std::string_view json);

  const std::string& system() const { return system_; }
  const std::vector<Message>& history() const { return history_; }

 private:
  using Settings = std::vector<std::pair<std::string, std::string>>;

  Action Command(std::string_view name, std::string_view rest);
  Action Ask(std::string text);
  Action Retry();
  Action Set(std::string_view rest);
  std::string Show() const;
  std::string ShowSettings() const;

  std::string system_;
  std::vector<Message> history_;
  std::optional<std::string> asked_;  // Not answered yet.
  std::string last_;                  // The last message...
  bool last_answered_ = false;        // ... and whether the history ends with it.
  Settings settings_;                 // As they were typed.
  v1::GenerateRequest template_;      // With the settings in it.
};

}  // namespace renga
