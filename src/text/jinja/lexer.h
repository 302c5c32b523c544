// Cuts the source of a template into tokens, with the white-space rules of the reference
// environment: trim_blocks and lstrip_blocks on, one trailing newline dropped.
//
// Thread safety: pure function.

#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "renga/status.h"

namespace renga::jinja {

struct Token {
  enum class Kind : uint8_t {
    kData,  // Text between tags.
    kBlockBegin,
    kBlockEnd,
    kVariableBegin,
    kVariableEnd,
    kName,
    kString,  // `text` has its escapes resolved.
    kInteger,
    kFloat,
    kOperator,
    kEnd,
  };
  Kind kind = Kind::kEnd;
  std::string text;
  size_t offset = 0;  // Into the normalised source.
};

// Line ends become "\n"; one trailing newline goes.
std::string NormalizeSource(std::string_view source);

// The tokens of a normalised source, kEnd last.
StatusOr<std::vector<Token>> Lex(std::string_view source);

// An error at a place of the source: "line 3, column 7: ...".
Status ErrorAt(std::string_view source, size_t offset, std::string_view message);

}  // namespace renga::jinja
