// Parses a template into its syntax tree (recursive descent, bounded in depth).
//
// Known: the expressions and the statements for, if, set, macro, call, filter, with, raw,
// break, continue and generation. Others (extends, include, import, block, recursive
// loops) are refused by name.
//
// Thread safety: pure function.

#pragma once

#include <string_view>

#include "renga/status.h"
#include "text/jinja/ast.h"

namespace renga::jinja {

// `source` is normalised (NormalizeSource). Errors name line and column.
StatusOr<Block> ParseTemplate(std::string_view source);

}  // namespace renga::jinja
