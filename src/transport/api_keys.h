// ApiKeys: who may call, from auth.keys_file.
//
// One key a line: `tenant key`; blank lines and lines that begin with # are comments. A
// tenant may have several keys (to change one without a gap); a key belongs to one
// tenant.
//
// Only SHA-256 digests are kept, and a presented key is compared with all of them, each
// in fixed time: how long it takes tells nothing about any key. No message holds a key.
//
// Thread safety: immutable after load.

#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "renga/status.h"

namespace renga {

// Who may call Admin, where keys are on.
inline constexpr std::string_view kAdminTenant = "admin";

class ApiKeys {
 public:
  static constexpr size_t kMinKeyBytes = 16;
  static constexpr size_t kMaxKeyBytes = 1024;
  static constexpr size_t kMaxTenantBytes = 128;

  // Errors have the field "auth.keys_file" and name the line. Warns in the log if others
  // than the file's owner and group may read it.
  static StatusOr<std::shared_ptr<const ApiKeys>> Load(const std::string& path);
  // `text`: the file's content.
  static StatusOr<std::shared_ptr<const ApiKeys>> Parse(std::string_view text);

  // The tenant whose key it is; nullptr: nobody's.
  const std::string* TenantOf(std::string_view key) const;

 private:
  using Digest = std::array<uint8_t, 32>;
  struct Entry {
    Digest digest{};
    std::string tenant;
    int64_t line = 0;
  };

  static Digest DigestOf(std::string_view key);

  Status AddLine(std::string_view line, int64_t number);
  // The last entry with that digest, or nullptr; looks at all of them.
  const Entry* Find(const Digest& digest) const;

  std::vector<Entry> entries_;
};

}  // namespace renga
