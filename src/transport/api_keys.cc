#include "transport/api_keys.h"

#include <openssl/crypto.h>
#include <openssl/sha.h>
#include <sys/stat.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <utility>

#include "base/log.h"
#include "base/status_macros.h"

namespace renga {
namespace {

constexpr int64_t kMaxFileBytes = 1 << 20;
constexpr std::string_view kBlanks = " \t\r";

Status Refuse(std::string message) {
  return InvalidArgument("auth.keys_file", std::move(message));
}

Status RefuseLine(int64_t number, const std::string& message) {
  return Refuse("line " + std::to_string(number) + ": " + message);
}

// Takes the first word, and the blanks before it, off `line`.
std::string_view TakeWord(std::string_view& line) {
  line.remove_prefix(std::min(line.find_first_not_of(kBlanks), line.size()));
  const std::string_view word = line.substr(0, line.find_first_of(kBlanks));
  line.remove_prefix(word.size());
  return word;
}

bool IsTenantCharacter(char c) {
  const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
  return letter || (c >= '0' && c <= '9') || c == '-' || c == '_' || c == '.';
}

// What an HTTP/2 header can carry.
bool IsKeyCharacter(char c) { return c > ' ' && c < '\x7f'; }

}  // namespace

ApiKeys::Digest ApiKeys::DigestOf(std::string_view key) {
  Digest digest;
  SHA256(reinterpret_cast<const unsigned char*>(key.data()), key.size(), digest.data());
  return digest;
}

Status ApiKeys::AddLine(std::string_view line, int64_t number) {
  const std::string_view tenant = TakeWord(line);
  if (tenant.empty() || tenant.front() == '#') return OkStatus();
  const std::string_view key = TakeWord(line);
  if (key.empty() || !TakeWord(line).empty()) {
    return RefuseLine(number, "must be: tenant key");
  }
  if (tenant.size() > kMaxTenantBytes ||
      !std::all_of(tenant.begin(), tenant.end(), IsTenantCharacter)) {
    return RefuseLine(
        number, "a tenant's name has at most 128 letters, digits, '-', '_' and '.'");
  }
  if (key.size() < kMinKeyBytes || key.size() > kMaxKeyBytes ||
      !std::all_of(key.begin(), key.end(), IsKeyCharacter)) {
    return RefuseLine(number, "a key has 16 to 1024 printable ASCII characters");
  }
  Entry entry{.digest = DigestOf(key), .tenant = std::string(tenant), .line = number};
  if (const Entry* same = Find(entry.digest); same != nullptr) {
    return RefuseLine(number, "has the key of line " + std::to_string(same->line));
  }
  entries_.push_back(std::move(entry));
  return OkStatus();
}

StatusOr<std::shared_ptr<const ApiKeys>> ApiKeys::Parse(std::string_view text) {
  auto keys = std::make_shared<ApiKeys>();
  for (int64_t number = 1; !text.empty(); ++number) {
    const size_t end = std::min(text.find('\n'), text.size());
    RENGA_RETURN_IF_ERROR(keys->AddLine(text.substr(0, end), number));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  if (keys->entries_.empty()) return Refuse("has no key: nobody could call");
  return std::shared_ptr<const ApiKeys>(std::move(keys));
}

StatusOr<std::shared_ptr<const ApiKeys>> ApiKeys::Load(const std::string& path) {
  struct stat info {};
  std::ifstream file(path, std::ios::binary);
  if (!file || stat(path.c_str(), &info) != 0) return Refuse("can't read " + path);
  if (!S_ISREG(info.st_mode)) return Refuse(path + " is not a file");
  if (info.st_size > kMaxFileBytes) return Refuse(path + " is larger than 1 MiB");
  if ((info.st_mode & S_IROTH) != 0) {
    LogWarn("keys_file_readable_by_all", {{"path", std::string_view(path)}});
  }
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  if (file.bad()) return Refuse("can't read " + path);
  return Parse(text);
}

const ApiKeys::Entry* ApiKeys::Find(const Digest& digest) const {
  const Entry* found = nullptr;
  for (const Entry& entry : entries_) {
    const bool same =
        CRYPTO_memcmp(entry.digest.data(), digest.data(), digest.size()) == 0;
    found = same ? &entry : found;
  }
  return found;
}

const std::string* ApiKeys::TenantOf(std::string_view key) const {
  const Entry* entry = Find(DigestOf(key));
  return entry == nullptr ? nullptr : &entry->tenant;
}

}  // namespace renga
