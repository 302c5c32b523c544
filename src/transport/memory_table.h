// A MemoryReport as text, for people.

#pragma once

#include <string>

#include "renga/server_control.h"

namespace renga {

// One line a purpose, in columns, then the KV pages; each ends with a newline.
std::string MemoryTable(const MemoryReport& report);

}  // namespace renga
