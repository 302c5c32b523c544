// CLI11, filled from the table of commands and the schema table.

#include "app/command_line.h"

#include <CLI/CLI.hpp>
#include <deque>
#include <string_view>
#include <variant>
#include <vector>

#include "app/config_schema.h"

namespace renga {
namespace {

struct Subcommand {
  CommandLine::Command command;
  const char* name;
  const char* help;
  // The settings that are its flags: those whose names begin with one of these words,
  // separated by spaces; empty: all.
  std::string_view sections;
  // Its own arguments.
  void (*add_options)(CLI::App& app, CommandLine& line);
};

constexpr char kWeightTypes[] = "f32|q8_0|q4_0|q4_1|q4_k";

void AddServe(CLI::App& app, CommandLine& line) {
  app.add_flag("--print-config", line.print_config,
               "Print all settings as commented YAML and exit");
}

void AddGateway(CLI::App& app, CommandLine& line) {
  app.add_option("--target", line.targets, "gRPC address of a server; repeatable")
      ->type_name("HOST:PORT")
      ->required();
}

void AddChat(CLI::App& app, CommandLine& line) {
  app.add_option("--target", line.chat.target,
                 "gRPC address of a running server. Without it the model is loaded here "
                 "(--model.path)")
      ->type_name("HOST:PORT");
  app.add_option("--key-file", line.chat.key_file,
                 "A file with the key that the server wants, on its first line")
      ->type_name("FILE");
  app.add_option("--system", line.chat.system, "The system prompt")->type_name("TEXT");
}

void AddTokenize(CLI::App& app, CommandLine& line) {
  app.add_option("text", line.text, "The text");
}

void AddQuantize(CLI::App& app, CommandLine& line) {
  QuantizeOptions& options = line.quantize;
  app.add_option("IN", options.input, "The GGUF file to read")->required();
  app.add_option("OUT", options.output, "The GGUF file to write")->required();
  app.add_option("--type", options.type, "Type of the weights")
      ->type_name(kWeightTypes)
      ->required();
  app.add_option("--embedding-type", options.embedding_type,
                 "Type of the tables of tokens; q8_0 for the 4-bit types unless said")
      ->type_name(kWeightTypes);
  app.add_flag("--force", options.force, "Replace OUT if it is there");
  app.add_flag("!--no-report", options.report,
               "Do not compare OUT with IN on a text afterwards");
  app.add_option("--text", options.text_file,
                 "The text of the report, UTF-8; a built-in one unless given")
      ->type_name("FILE");
}

void AddEval(CLI::App& app, CommandLine& line) {
  app.add_option("--reference", line.eval.reference,
                 "A model with the same vocabulary to compare the predictions with")
      ->type_name("FILE");
  app.add_option("--text", line.eval.text_file,
                 "The text, UTF-8; a built-in one unless given")
      ->type_name("FILE");
}

void AddDoctor(CLI::App& app, CommandLine& line) {
  app.add_flag("--json", line.doctor.json, "Print one JSON object");
  app.add_flag("--quick", line.doctor.quick, "Measure nothing");
}

constexpr Subcommand kSubcommands[] = {
    {CommandLine::Command::kServe, "serve",
     "Load a model and serve it over gRPC and HTTP", "", AddServe},
    {CommandLine::Command::kGateway, "gateway",
     "The HTTP API and chat page alone, in front of servers elsewhere", "", AddGateway},
    {CommandLine::Command::kChat, "chat",
     "Talk with a model in the terminal: a server's, or one loaded here", "", AddChat},
    {CommandLine::Command::kTokenize, "tokenize",
     "Print the token ids of a text, read from standard input if not given", "",
     AddTokenize},
    {CommandLine::Command::kQuantize, "quantize",
     "Write a model file with smaller weights, and say what that costs", "device.",
     AddQuantize},
    {CommandLine::Command::kEval, "eval",
     "Perplexity of a model, and its divergence from another", "model. device. kv. log.",
     AddEval},
    {CommandLine::Command::kDoctor, "doctor",
     "Say what this machine can do, and whether the settings and a model fit it", "",
     AddDoctor},
};

// Values stay text here: the schema reads them, with one wording for all sources.
struct Flags {
  std::string file;
  std::vector<std::string> values = std::vector<std::string>(ConfigSchema().size());
  std::vector<CLI::Option*> options =
      std::vector<CLI::Option*>(ConfigSchema().size(), nullptr);
};

bool IsIn(std::string_view sections, std::string_view name) {
  if (sections.empty()) return true;
  while (!sections.empty()) {
    const size_t space = sections.find(' ');
    if (name.starts_with(sections.substr(0, space))) return true;
    if (space == std::string_view::npos) break;
    sections.remove_prefix(space + 1);
  }
  return false;
}

std::string KindOf(const ConfigField& field, Config& defaults) {
  if (std::holds_alternative<bool*>(field.value(defaults))) return "true|false";
  return std::string(field.choices.empty() ? field.unit : field.choices);
}

void AddFlags(CLI::App& command, std::string_view sections, Flags& flags) {
  command.add_option("--config", flags.file, "YAML file with settings")
      ->type_name("FILE");
  Config defaults;
  for (size_t i = 0; i < ConfigSchema().size(); ++i) {
    const ConfigField& field = ConfigSchema()[i];
    if (!IsIn(sections, field.name)) continue;
    const std::string doc =
        std::string(field.doc) + " Default " + ConfigFieldYaml(field, defaults) + ".";
    flags.options[i] =
        command.add_option("--" + std::string(field.name), flags.values[i], doc)
            ->type_name(KindOf(field, defaults))
            ->group("Settings");
  }
}

ConfigSources Collect(const Flags& flags) {
  ConfigSources sources{.file = flags.file, .environment = {}, .flags = {}};
  for (size_t i = 0; i < flags.options.size(); ++i) {
    if (flags.options[i] == nullptr || flags.options[i]->count() == 0) continue;
    sources.flags.emplace_back(ConfigSchema()[i].name, flags.values[i]);
  }
  return sources;
}

CommandLine Exit(int code) {
  CommandLine line;
  line.exit_code = code;
  return line;
}

// CLI11 lists the leftovers in no useful order; the first unknown flag says it all.
void ComplainOfExtras(const CLI::App& app, std::ostream& err) {
  for (const std::string& extra : app.remaining(true)) {
    if (!extra.starts_with("--")) continue;
    err << "error: " << extra << ": there is no such setting (flag)\n";
    return;
  }
  err << "error: too many arguments; see renga --help\n";
}

}  // namespace

CommandLine ParseCommandLine(int argc, const char* const* argv, std::ostream& out,
                             std::ostream& err) {
  CommandLine line;
  CLI::App app("renga: a low-latency LLM inference server", "renga");
  app.set_version_flag("--version", "renga " RENGA_VERSION);
  app.require_subcommand(1);
  std::deque<Flags> flags;  // Of each command; CLI11 keeps references.
  std::vector<const CLI::App*> commands;
  for (const Subcommand& entry : kSubcommands) {
    CLI::App* command = app.add_subcommand(entry.name, entry.help);
    entry.add_options(*command, line);
    AddFlags(*command, entry.sections, flags.emplace_back());
    commands.push_back(command);
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ExtrasError&) {
    ComplainOfExtras(app, err);
    return Exit(2);
  } catch (const CLI::ParseError& error) {
    return Exit(app.exit(error, out, err) == 0 ? 0 : 2);
  }
  for (size_t i = 0; i < commands.size(); ++i) {
    if (!commands[i]->parsed()) continue;
    line.command = kSubcommands[i].command;
    line.sources = Collect(flags[i]);
  }
  return line;
}

}  // namespace renga
