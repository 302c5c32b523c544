#include "formats/output_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <system_error>

#include "formats/mapped_file.h"

namespace renga {
namespace {

constexpr int kNames = 100;  // Temporary names that are tried.

Status ErrorOf(const std::string& path, const char* what, int error) {
  const std::string message =
      BaseName(path) + ": " + what + ": " + std::generic_category().message(error);
  if (error == ENOSPC || error == EDQUOT) return ResourceExhausted(message);
  if (error == ENOENT) return NotFound(message);
  return FailedPrecondition(message);
}

Status AlreadyThere(const std::string& path) {
  return Status(StatusCode::kAlreadyExists, BaseName(path) + ": exists already");
}

std::string FolderOf(const std::string& path) {
  const size_t slash = path.find_last_of('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

}  // namespace

StatusOr<OutputFile> OutputFile::Create(const std::string& path, bool replace) {
  if (path.empty() || path.back() == '/') {
    return FailedPrecondition("'" + path + "' is no name of a file");
  }
  struct stat info = {};
  if (stat(path.c_str(), &info) == 0) {
    if (!S_ISREG(info.st_mode)) {
      return FailedPrecondition(BaseName(path) + ": is there and no regular file");
    }
    if (!replace) return AlreadyThere(path);
  }
  for (int i = 0; i < kNames; ++i) {
    std::string temporary =
        path + ".partial-" + std::to_string(getpid()) + "-" + std::to_string(i);
    const int fd = open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd >= 0) return OutputFile(path, std::move(temporary), replace, fd);
    if (errno != EEXIST) return ErrorOf(path, "cannot create", errno);
  }
  return ErrorOf(path, "cannot create", EEXIST);
}

OutputFile::~OutputFile() {
  if (fd_ < 0) return;
  close(fd_);
  unlink(temporary_.c_str());
}

Status OutputFile::SystemError(const char* what, int error) const {
  return ErrorOf(path_, what, error);
}

Status OutputFile::Reserve(int64_t bytes) {
  if (bytes <= 0 || fallocate(fd_, 0, 0, bytes) == 0) return OkStatus();
  if (errno == EOPNOTSUPP || errno == ENOSYS || errno == EINTR) return OkStatus();
  return SystemError(("cannot take " + std::to_string(bytes) + " bytes").c_str(), errno);
}

Status OutputFile::Write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = write(fd_, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return SystemError("cannot write", errno);
    bytes = bytes.subspan(static_cast<size_t>(written));
  }
  return OkStatus();
}

Status OutputFile::Rename() {
  if (replace_) {
    if (rename(temporary_.c_str(), path_.c_str()) == 0) return OkStatus();
    return SystemError("cannot rename", errno);
  }
  // Somebody may have made the file meanwhile.
  if (link(temporary_.c_str(), path_.c_str()) == 0) {
    unlink(temporary_.c_str());
    return OkStatus();
  }
  if (errno == EEXIST) return AlreadyThere(path_);
  // A file system without hard links.
  if (rename(temporary_.c_str(), path_.c_str()) == 0) return OkStatus();
  return SystemError("cannot rename", errno);
}

Status OutputFile::Commit() {
  Status status;
  if (fsync(fd_) != 0) status = SystemError("cannot write", errno);
  if (status.ok()) status = Rename();
  if (!status.ok()) return status;  // The destructor removes the temporary file.
  close(fd_);
  fd_ = -1;
  // The new name is durable once its folder is.
  const int folder = open(FolderOf(path_).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder >= 0) {
    fsync(folder);
    close(folder);
  }
  return OkStatus();
}

bool SameFile(const std::string& a, const std::string& b) {
  struct stat left = {};
  struct stat right = {};
  return stat(a.c_str(), &left) == 0 && stat(b.c_str(), &right) == 0 &&
         left.st_dev == right.st_dev && left.st_ino == right.st_ino;
}

}  // namespace renga
