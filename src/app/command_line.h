// The command line: subcommands and one flag per setting (CLI11 stays in the .cc file).
//
// Thread safety: free function without state.

#pragma once

#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "app/chat_command.h"
#include "app/config_loader.h"
#include "app/doctor_command.h"
#include "app/eval_command.h"
#include "app/quantize_command.h"

namespace renga {

struct CommandLine {
  enum class Command {
    kExit,
    kServe,
    kGateway,
    kChat,
    kTokenize,
    kQuantize,
    kEval,
    kDoctor
  };

  Command command = Command::kExit;
  int exit_code = 0;      // Of kExit: help was asked for (0), or the line was wrong (2).
  ConfigSources sources;  // Without the environment.

  // ---- Of single commands; what is no setting.
  bool print_config = false;         // serve: print the settings instead of serving.
  std::vector<std::string> targets;  // gateway: "host:port" of the servers; at least one.
  std::optional<std::string> text;   // tokenize: absent means standard input.
  ChatOptions chat;
  QuantizeOptions quantize;  // Without `device`, which comes from the settings.
  EvalOptions eval;
  DoctorOptions doctor;
};

// Help goes to `out`, complaints to `err`.
CommandLine ParseCommandLine(int argc, const char* const* argv, std::ostream& out,
                             std::ostream& err);

}  // namespace renga
