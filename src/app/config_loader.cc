// YAML with yaml-cpp, environment by name, flags as main.cc collected them.

#include "app/config_loader.h"

#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <fstream>
#include <set>
#include <sstream>
#include <string_view>
#include <system_error>
#include <utility>

#include "app/config_schema.h"
#include "base/status_macros.h"

namespace renga {
namespace {

constexpr size_t kMaxFileBytes = 1 << 20;

Status At(const Status& status, const std::string& source) {
  return InvalidArgument(status.field(), status.message() + " (" + source + ")");
}

// ---- File.

struct YamlSource {
  std::string file;
  std::set<std::string> seen;  // A key that stands there twice would be half ignored.
  Config& config;

  std::string Where(const YAML::Node& node) const {
    return "in " + file + ", line " + std::to_string(node.Mark().line + 1);
  }
};

Status ReadYamlField(const std::string& name, const YAML::Node& key,
                     const YAML::Node& value, YamlSource& source) {
  const ConfigField* field = FindConfigField(name);
  if (field == nullptr) {
    return At(InvalidArgument(name, "there is no such setting"), source.Where(key));
  }
  if (!source.seen.insert(name).second) {
    return At(InvalidArgument(name, "stands there twice"), source.Where(key));
  }
  if (!value.IsScalar()) {
    return At(InvalidArgument(name, "must be a single value"), source.Where(key));
  }
  const Status set = SetConfigField(*field, value.Scalar(), source.config);
  return set.ok() ? set : At(set, source.Where(value));
}

Status ReadYaml(const YAML::Node& root, YamlSource& source) {
  if (root.IsNull()) return OkStatus();  // An empty file sets nothing.
  if (!root.IsMap()) {
    return InvalidArgument("config", source.file + " must hold sections with keys");
  }
  for (const auto& section : root) {
    if (!section.first.IsScalar()) {
      return At(InvalidArgument("config", "a key must be a word"),
                source.Where(section.first));
    }
    const std::string& prefix = section.first.Scalar();
    if (section.second.IsNull()) continue;
    if (!section.second.IsMap()) {
      return At(InvalidArgument(prefix, "there is no such setting"),
                source.Where(section.first));
    }
    for (const auto& entry : section.second) {
      if (!entry.first.IsScalar()) {
        return At(InvalidArgument(prefix, "a key must be a word"),
                  source.Where(entry.first));
      }
      RENGA_RETURN_IF_ERROR(ReadYamlField(prefix + '.' + entry.first.Scalar(),
                                          entry.first, entry.second, source));
    }
  }
  return OkStatus();
}

Status ReadFile(const std::string& file, Config& config) {
  std::ifstream in(file, std::ios::binary);
  if (!in)
    return InvalidArgument("config",
                           file + ": " + std::generic_category().message(errno));
  std::string text(kMaxFileBytes + 1, '\0');
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (in.bad()) return InvalidArgument("config", file + ": cannot be read");
  text.resize(static_cast<size_t>(in.gcount()));
  if (text.size() > kMaxFileBytes) {
    return InvalidArgument("config", file + ": is longer than 1 MiB");
  }
  YamlSource source{.file = file, .seen = {}, .config = config};
  try {
    return ReadYaml(YAML::Load(text), source);
  } catch (const YAML::Exception& error) {
    return InvalidArgument(
        "config",
        file + ", line " + std::to_string(error.mark.line + 1) + ": " + error.msg);
  } catch (const std::exception& error) {
    return InvalidArgument("config", file + ": " + error.what());
  }
}

// ---- Environment.

// Names that belong to scripts and tests of this project.
bool BelongsToOthers(std::string_view name) {
  constexpr std::array<std::string_view, 2> kNames = {"RENGA_MODEL_DIR",
                                                      "RENGA_TEST_MODEL"};
  if (std::find(kNames.begin(), kNames.end(), name) != kNames.end()) return true;
  // Kubernetes gives every container the addresses of the services of its namespace, of
  // one called "renga-grpc" as RENGA_GRPC_PORT and RENGA_GRPC_SERVICE_HOST.
  return name.find("_SERVICE_") != std::string_view::npos || name.ends_with("_PORT") ||
         name.find("_PORT_") != std::string_view::npos;
}

bool HasOurSection(std::string_view name) {
  return std::any_of(
      ConfigSchema().begin(), ConfigSchema().end(), [&](const ConfigField& field) {
        const std::string own = EnvironmentName(field);
        const size_t section_end = own.find('_', std::string_view("RENGA_").size());
        return name.starts_with(std::string_view(own).substr(0, section_end + 1));
      });
}

// Letters to change, add or leave out (Levenshtein) to get from `a` to `b`.
size_t Distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j < row.size(); ++j) row[j] = j;
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = std::exchange(row[0], i + 1);
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t change = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({change, diagonal + 1, row[j] + 1});
    }
  }
  return row.back();
}

// The setting that `name` means if two letters are wrong at most; empty: none.
std::string MistypedSetting(std::string_view name) {
  constexpr size_t kMaxWrong = 2;
  for (const ConfigField& field : ConfigSchema()) {
    std::string own = EnvironmentName(field);
    // Long foreign names are none of ours, and would take long to compare.
    if (name.size() > own.size() + kMaxWrong) continue;
    if (Distance(name, own) <= kMaxWrong) return own;
  }
  return "";
}

// A wrong name must not start a server with a default in place of what was meant; but
// variables of others that only begin alike may stand there.
Status ReadVariable(const std::string& variable, LoadedConfig& loaded) {
  const size_t equals = variable.find('=');
  if (!variable.starts_with("RENGA_") || equals == std::string::npos) return OkStatus();
  const std::string name = variable.substr(0, equals);
  for (const ConfigField& field : ConfigSchema()) {
    if (EnvironmentName(field) != name) continue;
    const Status set = SetConfigField(
        field, std::string_view(variable).substr(equals + 1), loaded.config);
    return set.ok() ? set : At(set, "in the environment, " + name);
  }
  if (BelongsToOthers(name)) return OkStatus();
  const std::string meant = MistypedSetting(name);
  if (HasOurSection(name) || !meant.empty()) {
    return InvalidArgument(name, "there is no such setting (in the environment)" +
                                     (meant.empty() ? "" : "; is it " + meant + '?'));
  }
  loaded.warnings.push_back(name + " in the environment is not a setting");
  return OkStatus();
}

// ---- Printing.

// `text` as comment lines of at most 90 columns.
void AppendComment(std::string_view text, std::string& out) {
  constexpr size_t kWidth = 90;
  std::istringstream words{std::string(text)};
  std::string line = "  #";
  for (std::string word; words >> word;) {
    if (line.size() + 1 + word.size() > kWidth) {
      out += line + '\n';
      line = "  #";
    }
    line += ' ' + word;
  }
  out += line + '\n';
}

std::string Limits(const ConfigField& field) {
  const std::string unit(field.unit);
  if (!field.choices.empty()) return std::string(field.choices);
  Config config;
  const ConfigValue value = field.value(config);
  if (std::holds_alternative<bool*>(value)) return "true|false";
  if (std::holds_alternative<std::string*>(value)) return unit.empty() ? "text" : unit;
  return (unit.empty() ? "" : unit + ", ") + std::to_string(field.min) + " to " +
         std::to_string(field.max);
}

}  // namespace

StatusOr<LoadedConfig> LoadConfig(const ConfigSources& sources) {
  LoadedConfig loaded;
  if (!sources.file.empty()) {
    RENGA_RETURN_IF_ERROR(ReadFile(sources.file, loaded.config));
  }
  for (const std::string& variable : sources.environment) {
    RENGA_RETURN_IF_ERROR(ReadVariable(variable, loaded));
  }
  for (const auto& [name, text] : sources.flags) {
    const ConfigField* field = FindConfigField(name);
    if (field == nullptr) {
      return InvalidArgument(name, "there is no such setting (flag --" + name + ")");
    }
    const Status set = SetConfigField(*field, text, loaded.config);
    if (!set.ok()) return At(set, "flag --" + name);
  }
  RENGA_RETURN_IF_ERROR(CheckConfig(loaded.config));
  return loaded;
}

std::string PrintConfig(const Config& config) {
  std::string out =
      "# Every setting of renga. The same names are flags (--scheduler.window_ms 50) "
      "and\n"
      "# environment variables (RENGA_SCHEDULER_WINDOW_MS=50). Precedence: flag,\n"
      "# environment, file, default. Made by `renga serve --print-config`.\n";
  const Config defaults;
  std::string_view section;
  for (const ConfigField& field : ConfigSchema()) {
    const size_t dot = field.name.find('.');
    if (field.name.substr(0, dot) != section) {
      section = field.name.substr(0, dot);
      out += '\n' + std::string(section) + ":\n";
    }
    AppendComment(field.doc, out);
    // Not "(" + Limits(field): g++ 12 warns of an overlap that is none.
    const std::string limits = Limits(field) + "; default ";
    AppendComment('(' + limits + ConfigFieldYaml(field, defaults) + ')', out);
    out += "  " + std::string(field.name.substr(dot + 1)) + ": " +
           ConfigFieldYaml(field, config) + '\n';
  }
  return out;
}

}  // namespace renga
