// "rows.cuh:64" for an address of this program's code, by addr2line; asked once each.
//
// Thread safety: none.

#pragma once

#include <string>

namespace renga::test {

// `pc` is a return address: the line of the call before it.
std::string SourceLine(const void* pc);

// The name behind the last slash.
std::string BaseName(const std::string& path);

}  // namespace renga::test
