// The files of the chat page, embedded in the program. page_files.cc is written by the
// build from src/gateway/page.
//
// Thread safety: constants.

#pragma once

#include <string_view>

namespace renga {

struct PageFile {
  std::string_view path;  // "/" or "/page/chat.js"
  std::string_view type;  // Content-Type.
  std::string_view bytes;
};

// nullptr: no such file.
const PageFile* FindPageFile(std::string_view path);

}  // namespace renga
