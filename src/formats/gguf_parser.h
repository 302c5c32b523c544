// Reads the structure of a GGUF file out of its bytes. See gguf_file.h for what is
// promised; this is the only code that looks at unchecked bytes.

#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "formats/gguf_file.h"
#include "renga/status.h"

namespace renga {

// More than any model has; they bound what the index of a hostile file may cost.
inline constexpr uint64_t kMaxGgufKeys = 1 << 16;
inline constexpr uint64_t kMaxGgufTensors = 1 << 16;

// `name` is for messages. The contents view into `bytes`.
StatusOr<GgufContents> ParseGguf(const std::string& name,
                                 std::span<const std::byte> bytes);

// Bytes of one scalar; 0 for strings, arrays and numbers that are no type.
size_t GgufScalarBytes(GgufType type);
const char* GgufTypeName(GgufType type);

}  // namespace renga
