#include "app/chat_command.h"

#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <fstream>
#include <functional>
#include <iostream>
#include <iterator>
#include <memory>
#include <optional>
#include <string_view>
#include <thread>
#include <utility>

#include "app/chat_client.h"
#include "app/chat_session.h"
#include "app/server_app.h"
#include "app/terminal.h"
#include "base/log.h"
#include "base/status_macros.h"

namespace renga {
namespace {

constexpr int kFailed = 1;
constexpr int kWrongUsage = 2;
constexpr int kInterrupted = 130;
constexpr size_t kMaxFileBytes = size_t{16} << 20;
constexpr std::string_view kPrompt = "> ";
constexpr std::string_view kNextLinePrompt = "... ";

// Ctrl-C as a call of `on_interrupt`, on a thread of its own. Made before other threads,
// so that all of them inherit the blocked signal.
class InterruptWatch {
 public:
  explicit InterruptWatch(std::function<void()> on_interrupt)
      : on_interrupt_(std::move(on_interrupt)) {
    sigemptyset(&signals_);
    sigaddset(&signals_, SIGINT);
    pthread_sigmask(SIG_BLOCK, &signals_, nullptr);
    thread_ = std::thread([this] { Watch(); });
  }
  ~InterruptWatch() {
    ending_ = true;
    // For this thread alone, which waits for it.
    // NOLINTNEXTLINE(bugprone-bad-signal-to-kill-thread)
    pthread_kill(thread_.native_handle(), SIGINT);
    thread_.join();
  }
  InterruptWatch(const InterruptWatch&) = delete;
  InterruptWatch& operator=(const InterruptWatch&) = delete;

 private:
  void Watch() {
    for (;;) {
      int signal = 0;
      if (sigwait(&signals_, &signal) != 0) continue;
      if (ending_) return;
      on_interrupt_();
    }
  }

  const std::function<void()> on_interrupt_;
  sigset_t signals_{};
  std::atomic<bool> ending_{false};
  std::thread thread_;
};

StatusOr<std::string> ReadWhole(const std::string& path, size_t most) {
  std::ifstream in(path, std::ios::binary);
  if (!in) return NotFound(path + ": cannot be opened");
  std::string text(most + 1, '\0');
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(in.gcount()));
  if (in.bad()) return NotFound(path + ": cannot be read");
  if (text.size() > most) return InvalidArgument("", path + ": is too large");
  return text;
}

StatusOr<std::string> ReadKey(const std::string& path) {
  if (path.empty()) return std::string();
  StatusOr<std::string> text = ReadWhole(path, 4096);
  if (!text.ok()) return text.status().WithField("--key-file");
  std::string key = text->substr(0, text->find_first_of("\r\n"));
  for (const char c : key) {
    if (c <= 0x20 || c >= 0x7f) {
      return InvalidArgument("--key-file", "a key has printable ASCII characters only");
    }
  }
  if (key.empty()) return InvalidArgument("--key-file", path + ": holds no key");
  return key;
}

// For one who chats: no ports but the one that it talks to, on this machine alone.
Config PrivateConfig(Config config) {
  config.grpc.address = "127.0.0.1:0";
  config.gateway.address.clear();
  config.admin.address = "127.0.0.1:0";
  config.admin.grpc_address = "127.0.0.1:0";
  config.auth.keys_file.clear();
  return config;
}

// The conversation on standard input and output.
class Chat {
 public:
  Chat(std::string system, bool interactive)
      : session_(std::move(system)),
        interactive_(interactive),
        on_terminal_(IsTerminal(STDOUT_FILENO)),
        colour_(interactive && WantsColour()) {}

  void OnInterrupt();
  Status Open(const std::string& target, const std::string& key);
  int Run();

 private:
  // What is known of an answer as it comes.
  struct Answer {
    std::string text;
    std::optional<double> first_token_s;
    v1::Finished finished;
  };

  std::optional<std::string> ReadMessage();
  bool Handle(std::string_view line);  // False: it is time to go.
  void Ask();
  void Save(const std::string& path);
  void Load(const std::string& path);
  void Show(std::string_view text);
  void Complain(const std::string& text);
  void ShowStats(const Answer& answer);
  std::string Dim(const std::string& text) const {
    if (!colour_) return text;
    std::string out("\x1b[2m");
    return out.append(text).append("\x1b[0m");
  }

  ChatSession session_;
  const bool interactive_;
  const bool on_terminal_;
  const bool colour_;
  std::unique_ptr<ChatClient> client_;
  std::atomic<bool> open_{false};    // client_ is there, and stays.
  std::atomic<bool> asking_{false};  // An answer is under way.
  bool failed_ = false;
};

// Before there is a conversation it ends the program, as everywhere.
void Chat::OnInterrupt() {
  if (!open_) _exit(kInterrupted);
  if (asking_) return client_->Cancel();
  // The terminal has dropped what was typed. The main thread reads; nobody else writes.
  std::string again("\n");
  again.append(Dim("(Ctrl-D ends)")).append("\n").append(kPrompt);
  if (write(STDOUT_FILENO, again.data(), again.size()) < 0) return;
}

Status Chat::Open(const std::string& target, const std::string& key) {
  client_ = std::make_unique<ChatClient>(target, key);
  StatusOr<v1::GetModelResponse> model = client_->GetModel();
  if (!model.ok()) {
    return Status(model.status().code(), target + ": " + model.status().message());
  }
  open_ = true;
  if (interactive_) {
    Show(model->name() + " on " + model->backend() + ". /help lists the commands.\n");
  }
  return OkStatus();
}

int Chat::Run() {
  while (const std::optional<std::string> line = ReadMessage()) {
    if (!Handle(*line) || !std::cout) break;
  }
  if (interactive_) std::cout << '\n';
  return failed_ && !interactive_ ? kFailed : 0;
}

// Lines that end with a backslash are one message with those that follow.
std::optional<std::string> Chat::ReadMessage() {
  std::string message;
  for (std::string_view prompt = kPrompt;; prompt = kNextLinePrompt) {
    if (interactive_) std::cout << prompt << std::flush;
    std::string line;
    if (!std::getline(std::cin, line)) {
      return message.empty() ? std::nullopt : std::optional(message);
    }
    if (!line.empty() && line.back() == '\r') line.pop_back();
    if (line.empty() || line.back() != '\\') return message + line;
    line.back() = '\n';
    message += line;
  }
}

bool Chat::Handle(std::string_view line) {
  using Kind = ChatSession::Action::Kind;
  const ChatSession::Action action = session_.Enter(line);
  switch (action.kind) {
    case Kind::kNothing:
      return true;
    case Kind::kQuit:
      return false;
    case Kind::kAsk:
      Ask();
      return true;
    case Kind::kSay:
      // What is piped in gets answers back, and nothing else.
      if (interactive_ || line.starts_with("/show")) Show(action.text);
      return true;
    case Kind::kFail:
      Complain(action.text);
      return true;
    case Kind::kSave:
      Save(action.text);
      return true;
    case Kind::kLoad:
      Load(action.text);
      return true;
  }
  return true;
}

void Chat::Ask() {
  const TimePoint begin = std::chrono::steady_clock::now();
  Answer answer;
  asking_ = true;
  const Status status =
      client_->Ask(session_.Request(), [&](const v1::GenerateResponse& event) {
        if (event.has_finished()) answer.finished = event.finished();
        if (!event.has_chunk()) return;
        if (!answer.first_token_s) {
          answer.first_token_s =
              std::chrono::duration<double>(std::chrono::steady_clock::now() - begin)
                  .count();
        }
        answer.text += event.chunk().text();
        Show(event.chunk().text());
      });
  asking_ = false;
  const bool stopped = status.code() == StatusCode::kCancelled;
  if (!answer.text.empty() || status.ok()) std::cout << '\n' << std::flush;
  if (status.ok()) {
    ShowStats(answer);
    session_.Answered(std::move(answer.text));
  } else if (stopped && !answer.text.empty()) {
    if (interactive_) std::cout << Dim("(stopped)") << '\n';
    session_.Answered(std::move(answer.text));
  } else {
    session_.NotAnswered();
    Complain(stopped ? "stopped" : status.ToString());
  }
}

void Chat::ShowStats(const Answer& answer) {
  if (!interactive_) return;
  const v1::Usage& usage = answer.finished.usage();
  const double decode_s =
      static_cast<double>(answer.finished.timings().decode_us()) / 1e6;
  char text[200];
  int length = std::snprintf(text, sizeof text, "first token %.0f ms",
                             answer.first_token_s.value_or(0.0) * 1e3);
  if (usage.completion_tokens() > 1 && decode_s > 0.0) {
    length += std::snprintf(
        text + length, sizeof text - static_cast<size_t>(length), ", %.1f tokens/s",
        static_cast<double>(usage.completion_tokens() - 1) / decode_s);
  }
  std::snprintf(text + length, sizeof text - static_cast<size_t>(length),
                ", %lld of %lld prompt tokens cached%s",
                static_cast<long long>(usage.cached_tokens()),
                static_cast<long long>(usage.prompt_tokens()),
                answer.finished.finish_reason() == v1::FINISH_REASON_LENGTH
                    ? "; cut for its length"
                    : "");
  std::cout << Dim(std::string("(").append(text).append(")")) << '\n';
}

void Chat::Save(const std::string& path) {
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  out << session_.ToJson() << std::flush;
  if (!out) return Complain("/save: " + path + " cannot be written");
  if (interactive_) std::cout << "Saved.\n";
}

void Chat::Load(const std::string& path) {
  const StatusOr<std::string> text = ReadWhole(path, kMaxFileBytes);
  const Status status = text.ok() ? session_.FromJson(*text) : text.status();
  if (!status.ok()) return Complain("/load: " + status.ToString());
  if (interactive_) {
    std::cout << "Loaded " << session_.history().size() << " messages.\n";
  }
}

// Others wrote this text: a terminal gets no control characters of theirs.
void Chat::Show(std::string_view text) {
  if (on_terminal_) {
    std::cout << SafeForTerminal(text);
  } else {
    std::cout << text;
  }
  std::cout << std::flush;
}

void Chat::Complain(const std::string& text) {
  failed_ = true;
  std::cerr << "renga: " << SafeForTerminal(text) << '\n';
}

int Complain(const Status& status, int exit_code) {
  std::cerr << "renga: " << SafeForTerminal(status.ToString()) << '\n';
  return exit_code;
}

// The model of the settings, served for this program alone.
int ChatWithOwnServer(const Config& config, Chat& chat) {
  // Only what goes wrong, unless more is asked for.
  const std::string level = config.log.level == "info" ? "error" : config.log.level;
  if (const Status log = ConfigureLog(level, config.log.format); !log.ok()) {
    return Complain(log, kWrongUsage);
  }
  ServerApp server(PrivateConfig(config), MakeDefaultBackend,
                   IsTerminal(STDERR_FILENO) ? &std::cerr : nullptr);
  if (const Status started = server.Start(); !started.ok()) {
    return Complain(started, kFailed);
  }
  std::thread running([&server] { (void)server.Run(); });
  int code = kFailed;
  if (const Status open = chat.Open(server.grpc_address(), ""); !open.ok()) {
    Complain(open, kFailed);
  } else {
    code = chat.Run();
  }
  server.RequestStop();
  running.join();
  return code;
}

}  // namespace

int RunChat(const Config& config, const ChatOptions& options) {
  if (options.target.empty() && config.model.path.empty()) {
    return Complain(InvalidArgument("",
                                    "chat needs --target HOST:PORT of a server, or "
                                    "--model.path FILE to load"),
                    kWrongUsage);
  }
  if (!options.target.empty() && options.target.find(':') == std::string::npos) {
    return Complain(InvalidArgument("--target", "must be host:port"), kWrongUsage);
  }
  const StatusOr<std::string> key = ReadKey(options.key_file);
  if (!key.ok()) return Complain(key.status(), kWrongUsage);
  const bool interactive = IsTerminal(STDIN_FILENO) && IsTerminal(STDOUT_FILENO);
  Chat chat(options.system, interactive);
  // Without a terminal Ctrl-C ends the program, as in any pipe.
  std::optional<InterruptWatch> watch;
  if (interactive) watch.emplace([&chat] { chat.OnInterrupt(); });
  if (options.target.empty()) return ChatWithOwnServer(config, chat);
  if (const Status open = chat.Open(options.target, *key); !open.ok()) {
    return Complain(open, kFailed);
  }
  return chat.Run();
}

}  // namespace renga
