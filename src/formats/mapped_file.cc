#include "formats/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

namespace renga {
namespace {

// Closes the descriptor at the end of Open: a mapping outlives it.
class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }

 private:
  const int fd_;
};

Status SystemError(const std::string& path, const char* what, int error) {
  const std::string reason = std::generic_category().message(error);
  const std::string message = BaseName(path) + ": " + what + ": " + reason;
  if (error == ENOENT) return NotFound(message);
  return FailedPrecondition(message);
}

}  // namespace

std::string BaseName(const std::string& path) {
  return path.substr(path.find_last_of('/') + 1);
}

StatusOr<MappedFile> MappedFile::Open(const std::string& path) {
  // O_NONBLOCK: a FIFO by mistake is refused below instead of waited on.
  const Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (file.get() < 0) return SystemError(path, "cannot open", errno);
  struct stat info = {};
  if (fstat(file.get(), &info) != 0) return SystemError(path, "cannot stat", errno);
  if (!S_ISREG(info.st_mode)) {
    return FailedPrecondition(BaseName(path) + ": not a regular file");
  }
  if (info.st_size == 0) return MappedFile();
  const auto size = static_cast<size_t>(info.st_size);
  void* data = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.get(), 0);
  if (data == MAP_FAILED) return SystemError(path, "cannot map", errno);
  return MappedFile({static_cast<const std::byte*>(data), size});
}

MappedFile::~MappedFile() {
  if (bytes_.empty()) return;
  munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

void MappedFile::ReleasePages() const {
  if (bytes_.empty()) return;
  madvise(const_cast<std::byte*>(bytes_.data()), bytes_.size(), MADV_DONTNEED);
}

}  // namespace renga
