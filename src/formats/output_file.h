// OutputFile: a file that exists whole or not at all.
//
// The bytes go to a temporary name in the same folder; Commit makes them durable and
// gives them the real name. Destroyed before that, it removes what was written.
//
// Thread rule: one thread at a time.

#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include "renga/status.h"

namespace renga {

class OutputFile {
 public:
  // Refuses a path that exists unless `replace`, and one that is no regular file in any
  // case. Errors name the file by its base name and what the system says.
  static StatusOr<OutputFile> Create(const std::string& path, bool replace);

  ~OutputFile();
  OutputFile(OutputFile&& other) noexcept
      : path_(std::move(other.path_)),
        temporary_(std::move(other.temporary_)),
        replace_(other.replace_),
        fd_(std::exchange(other.fd_, -1)) {}
  OutputFile& operator=(OutputFile&&) = delete;

  // Asks the file system for `bytes` in all, so that a full disk is known before hours of
  // work; does nothing where it cannot be asked.
  Status Reserve(int64_t bytes);
  Status Write(std::span<const std::byte> bytes);
  // The last call. REQUIRES: not committed yet.
  Status Commit();

 private:
  OutputFile(std::string path, std::string temporary, bool replace, int fd)
      : path_(std::move(path)),
        temporary_(std::move(temporary)),
        replace_(replace),
        fd_(fd) {}

  Status SystemError(const char* what, int error) const;
  Status Rename();

  std::string path_;
  std::string temporary_;
  bool replace_ = false;
  int fd_ = -1;  // -1: moved from, or committed.
};

// Whether both paths lead to one and the same file.
bool SameFile(const std::string& a, const std::string& b);

}  // namespace renga
