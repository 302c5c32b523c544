// GgufWriter: writes a GGUF file (version 3) as a stream: the keys and the list of
// tensors first, then each tensor's bytes in pieces, so that no tensor is ever held
// whole.
//
//   CopyKeys / AddUint32 / AddTensor ... -> Begin -> Write ... -> Finish
//
// Thread rule: one thread at a time.

#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "formats/gguf_file.h"
#include "formats/output_file.h"
#include "renga/status.h"

namespace renga {

class GgufWriter {
 public:
  // All keys of `file`, byte by byte and in its order, but those in `without`. The
  // alignment of the data is that of the file.
  void CopyKeys(const GgufFile& file, std::span<const std::string_view> without);
  void AddUint32(std::string_view key, uint32_t value);
  // dims[0] is the innermost. REQUIRES: a known type, dims[0] in whole blocks of it.
  void AddTensor(std::string_view name, uint32_t ggml_type, std::vector<int64_t> dims);

  // Bytes of the whole file.
  int64_t FileBytes() const;

  // Reserves the space and writes all but the data. `out` outlives this.
  Status Begin(OutputFile& out);
  // The next bytes of the tensors, in the order in which they were added; a tensor's
  // padding comes by itself. REQUIRES: no piece reaches into the next tensor.
  Status Write(std::span<const std::byte> bytes);
  // Commits. REQUIRES: every tensor was written whole.
  Status Finish();

 private:
  struct Tensor {
    std::string name;
    uint32_t type = 0;
    std::vector<int64_t> dims;
    int64_t bytes = 0;
  };

  int64_t Aligned(int64_t bytes) const {
    return (bytes + alignment_ - 1) / alignment_ * alignment_;
  }
  std::string Header() const;

  int64_t alignment_ = 32;
  uint64_t keys_ = 0;
  std::string key_bytes_;
  std::vector<Tensor> tensors_;
  OutputFile* out_ = nullptr;
  size_t tensor_ = 0;    // The one that is being written.
  int64_t written_ = 0;  // Of its bytes.
};

}  // namespace renga
