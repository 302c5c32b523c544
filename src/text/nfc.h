// Unicode normalisation form C, in O(n log n) whatever the text.
//
// utf8proc's own one-call normaliser orders combining marks by insertion, which is
// quadratic on a long run of marks; here the ordering is a stable sort per run.
//
// Thread safety: pure function.

#pragma once

#include <string>
#include <string_view>

namespace renga {

// REQUIRES: valid UTF-8.
std::string NormalizeNfc(std::string_view text);

}  // namespace renga
