// The tensor types of GGUF files: how many values one block holds, and its bytes.
//
// All known types are here, not only those that renga computes with: a file is checked as
// a whole when it is opened, and a type that is known but not supported is named.

#pragma once

#include <cstdint>
#include <string>

namespace renga {

inline constexpr uint32_t kGgmlF32 = 0;
inline constexpr uint32_t kGgmlF16 = 1;
inline constexpr uint32_t kGgmlQ4_0 = 2;
inline constexpr uint32_t kGgmlQ4_1 = 3;
inline constexpr uint32_t kGgmlQ8_0 = 8;
inline constexpr uint32_t kGgmlQ4K = 12;
inline constexpr uint32_t kGgmlBf16 = 30;

struct GgmlTypeInfo {
  uint32_t type = 0;
  const char* name = "";
  int64_t block_values = 0;
  int64_t block_bytes = 0;
};

// nullptr for a number that no format version uses.
const GgmlTypeInfo* FindGgmlType(uint32_t type);

// "Q4_1"; "type 77" for an unknown one.
std::string GgmlTypeName(uint32_t type);

}  // namespace renga
