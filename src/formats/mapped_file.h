// MappedFile: a whole regular file as read-only memory.
//
// Thread safety: immutable; any thread may read. A file that somebody shortens while it
// is mapped ends the process by SIGBUS: model files are replaced, never rewritten.

#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <utility>

#include "renga/status.h"

namespace renga {

class MappedFile {
 public:
  // Errors name the file by its base name only: messages may reach clients.
  static StatusOr<MappedFile> Open(const std::string& path);

  MappedFile() = default;
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}
  MappedFile& operator=(MappedFile&& other) noexcept {
    std::swap(bytes_, other.bytes_);
    return *this;
  }

  std::span<const std::byte> bytes() const { return bytes_; }
  // Gives the resident pages back to the system; they are read again when touched.
  void ReleasePages() const;

 private:
  explicit MappedFile(std::span<const std::byte> bytes) : bytes_(bytes) {}

  std::span<const std::byte> bytes_;  // Page aligned.
};

// The part of a path after its last slash.
std::string BaseName(const std::string& path);

}  // namespace renga
