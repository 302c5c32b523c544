// CLI11, filled from the schema table.

#include "app/command_line.h"

#include <CLI/CLI.hpp>
#include <variant>
#include <vector>

#include "app/config_schema.h"

namespace renga {
namespace {

// Values stay text here: the schema reads them, with one wording for all sources.
struct Flags {
  std::string file;
  std::vector<std::string> values = std::vector<std::string>(ConfigSchema().size());
  std::vector<CLI::Option*> options;
};

void AddFlags(CLI::App& command, Flags& flags) {
  command.add_option("--config", flags.file, "YAML file with settings")
      ->type_name("FILE");
  Config defaults;
  for (size_t i = 0; i < ConfigSchema().size(); ++i) {
    const ConfigField& field = ConfigSchema()[i];
    const bool is_bool = std::holds_alternative<bool*>(field.value(defaults));
    const std::string kind(is_bool                 ? "true|false"
                           : field.choices.empty() ? field.unit
                                                   : field.choices);
    flags.options.push_back(command
                                .add_option("--" + std::string(field.name),
                                            flags.values[i],
                                            std::string(field.doc) + " Default " +
                                                ConfigFieldYaml(field, defaults) + ".")
                                ->type_name(kind)
                                ->group("Settings"));
  }
}

ConfigSources Collect(const Flags& flags) {
  ConfigSources sources{.file = flags.file, .environment = {}, .flags = {}};
  for (size_t i = 0; i < flags.options.size(); ++i) {
    if (flags.options[i]->count() == 0) continue;
    sources.flags.emplace_back(ConfigSchema()[i].name, flags.values[i]);
  }
  return sources;
}

}  // namespace

CommandLine ParseCommandLine(int argc, const char* const* argv, std::ostream& out,
                             std::ostream& err) {
  CommandLine line;
  CLI::App app("renga: a low-latency LLM inference server", "renga");
  app.set_version_flag("--version", "renga " RENGA_VERSION);
  app.require_subcommand(1);

  Flags serve_flags;
  CLI::App* serve =
      app.add_subcommand("serve", "Load a model and serve it over gRPC and HTTP");
  serve->add_flag("--print-config", line.print_config,
                  "Print all settings as commented YAML and exit");
  AddFlags(*serve, serve_flags);

  Flags gateway_flags;
  CLI::App* gateway = app.add_subcommand(
      "gateway", "The HTTP API and chat page alone, in front of servers elsewhere");
  gateway->add_option("--target", line.targets, "gRPC address of a server; repeatable")
      ->type_name("HOST:PORT")
      ->required();
  AddFlags(*gateway, gateway_flags);

  Flags tokenize_flags;
  std::string text;
  CLI::App* tokenize = app.add_subcommand(
      "tokenize", "Print the token ids of a text, read from standard input if not given");
  CLI::Option* text_option = tokenize->add_option("text", text, "The text");
  AddFlags(*tokenize, tokenize_flags);

  try {
    app.parse(argc, argv);
  } catch (const CLI::ExtrasError&) {
    // CLI11 lists the leftovers in no useful order; the first unknown flag says it all.
    for (const std::string& extra : app.remaining(true)) {
      if (extra.rfind("--", 0) != 0) continue;
      err << "error: " << extra << ": there is no such setting (flag)\n";
      line.exit_code = 2;
      return line;
    }
    err << "error: too many arguments; see renga --help\n";
    line.exit_code = 2;
    return line;
  } catch (const CLI::ParseError& error) {
    line.exit_code = app.exit(error, out, err) == 0 ? 0 : 2;
    return line;
  }
  if (serve->parsed()) {
    line.command = CommandLine::Command::kServe;
    line.sources = Collect(serve_flags);
  } else if (gateway->parsed()) {
    line.command = CommandLine::Command::kGateway;
    line.sources = Collect(gateway_flags);
  } else {
    line.command = CommandLine::Command::kTokenize;
    line.sources = Collect(tokenize_flags);
    if (text_option->count() > 0) line.text = text;
  }
  return line;
}

}  // namespace renga
