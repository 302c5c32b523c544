// The subcommands; nothing else.
//
// Exit codes: 0 done; 1 what the command is for did not work (serve: it could not start,
// also: with what a setting names, or its engine gave up); 2 the command line is wrong,
// or a setting is malformed or missing.

#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <iostream>
#include <iterator>

#include "app/chat_command.h"
#include "app/command_line.h"
#include "app/config_loader.h"
#include "app/doctor_command.h"
#include "app/eval_command.h"
#include "app/gateway_app.h"
#include "app/quantize_command.h"
#include "app/server_app.h"
#include "app/signal_watch.h"
#include "app/terminal.h"
#include "base/log.h"
#include "formats/gguf_file.h"
#include "text/load_tokenizer.h"

namespace renga {
namespace {

constexpr int kFailed = 1;
constexpr int kWrongUsage = 2;

int Complain(const Status& status, int exit_code) {
  std::cerr << "renga: " << status.ToString() << '\n';
  return exit_code;
}

Status RequireModelPath(const Config& config) {
  if (!config.model.path.empty()) return OkStatus();
  return InvalidArgument("model.path", "is required: the GGUF file");
}

// Every connection is a descriptor, and gRPC stops accepting for good once there is none
// left. The usual soft limit of 1,024 is for programs that call select; this one does
// not.
void RaiseDescriptorLimit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

int Serve(const CommandLine& line, const LoadedConfig& loaded) {
  if (line.print_config) {
    std::cout << PrintConfig(loaded.config);
    return 0;
  }
  if (const Status log = ConfigureLog(loaded.config.log.level, loaded.config.log.format);
      !log.ok()) {
    return Complain(log, kWrongUsage);
  }
  for (const std::string& warning : loaded.warnings) {
    LogWarn("config", {{"warning", std::string_view(warning)}});
  }
  if (const Status path = RequireModelPath(loaded.config); !path.ok()) {
    return Complain(path, kWrongUsage);
  }
  RaiseDescriptorLimit();
  ServerApp app(loaded.config, MakeDefaultBackend,
                IsTerminal(STDERR_FILENO) ? &std::cerr : nullptr);
  SignalWatch signals([&app] { app.RequestStop(); });
  if (const Status started = app.Start(); !started.ok())
    return Complain(started, kFailed);
  const Status ended = app.Run();
  return ended.ok() ? 0 : Complain(ended, kFailed);
}

int Gateway(const CommandLine& line, const LoadedConfig& loaded) {
  if (const Status log = ConfigureLog(loaded.config.log.level, loaded.config.log.format);
      !log.ok()) {
    return Complain(log, kWrongUsage);
  }
  RaiseDescriptorLimit();
  GatewayApp app(loaded.config, line.targets);
  SignalWatch signals([&app] { app.RequestStop(); });
  if (const Status started = app.Start(); !started.ok())
    return Complain(started, kFailed);
  app.Run();
  return 0;
}

int Tokenize(const CommandLine& line, const LoadedConfig& loaded) {
  if (const Status path = RequireModelPath(loaded.config); !path.ok()) {
    return Complain(path, kWrongUsage);
  }
  const auto file = GgufFile::Open(loaded.config.model.path);
  if (!file.ok()) return Complain(file.status(), kFailed);
  const auto tokenizer = LoadTokenizer(**file);
  if (!tokenizer.ok()) return Complain(tokenizer.status(), kFailed);
  const std::string text = line.text ? *line.text
                                     : std::string(std::istreambuf_iterator(std::cin),
                                                   std::istreambuf_iterator<char>());
  const auto ids = (*tokenizer)->Encode({.text = text, .trusted = {}});
  if (!ids.ok()) return Complain(ids.status(), kFailed);
  const char* separator = "";
  for (const TokenId id : *ids) {
    std::cout << separator << id;
    separator = " ";
  }
  std::cout << '\n';
  return 0;
}

int Chat(const CommandLine& line, const LoadedConfig& loaded) {
  return RunChat(loaded.config, line.chat);
}

int Quantize(const CommandLine& line, const LoadedConfig& loaded) {
  QuantizeOptions options = line.quantize;
  options.device = loaded.config.device;
  options.progress = IsTerminal(STDERR_FILENO);
  return RunQuantize(options, std::cout, std::cerr);
}

int Eval(const CommandLine& line, const LoadedConfig& loaded) {
  EvalOptions options = line.eval;
  options.progress = IsTerminal(STDERR_FILENO);
  return RunEval(loaded.config, options, std::cout, std::cerr);
}

int Doctor(const CommandLine& line, const LoadedConfig& loaded) {
  return RunDoctor(loaded, line.doctor, std::cout);
}

struct Runner {
  CommandLine::Command command;
  int (*run)(const CommandLine& line, const LoadedConfig& loaded);
};

constexpr Runner kRunners[] = {
    {CommandLine::Command::kServe, Serve},
    {CommandLine::Command::kGateway, Gateway},
    {CommandLine::Command::kChat, Chat},
    {CommandLine::Command::kTokenize, Tokenize},
    {CommandLine::Command::kQuantize, Quantize},
    {CommandLine::Command::kEval, Eval},
    {CommandLine::Command::kDoctor, Doctor},
};

int Main(int argc, char** argv) {
  std::signal(SIGPIPE, SIG_IGN);  // A reader that went away is an error of its write.
  CommandLine line = ParseCommandLine(argc, argv, std::cout, std::cerr);
  if (line.command == CommandLine::Command::kExit) return line.exit_code;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    line.sources.environment.emplace_back(*variable);
  }
  const StatusOr<LoadedConfig> loaded = LoadConfig(line.sources);
  if (!loaded.ok()) return Complain(loaded.status(), kWrongUsage);
  for (const Runner& runner : kRunners) {
    if (runner.command == line.command) return runner.run(line, *loaded);
  }
  return kWrongUsage;
}

}  // namespace
}  // namespace renga

// What is thrown while starting may end the process.
// NOLINTNEXTLINE(bugprone-exception-escape)
int main(int argc, char** argv) { return renga::Main(argc, argv); }
