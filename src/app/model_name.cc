#include "app/model_name.h"

#include <algorithm>

namespace renga {
namespace {

constexpr size_t kMaxNameBytes = 128;

bool IsPlain(const std::string& name) {
  return !name.empty() && name.size() <= kMaxNameBytes &&
         std::all_of(name.begin(), name.end(),
                     [](char c) { return c >= 0x20 && c < 0x7f; });
}

}  // namespace

std::string ServedModelName(const ModelSettings& settings, const std::string& file_name) {
  if (!settings.name.empty()) return settings.name;
  if (IsPlain(file_name)) return file_name;
  std::string stem = settings.path.substr(settings.path.rfind('/') + 1);
  if (stem.ends_with(".gguf")) stem.resize(stem.size() - 5);
  return IsPlain(stem) ? stem : "model";
}

}  // namespace renga
