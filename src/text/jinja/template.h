// Template: a parsed Jinja template, to render as often as wanted.
//
// The language is that of chat templates: Jinja 2 with trim_blocks, lstrip_blocks, loop
// controls and `generation` blocks, in a sandbox without any access to the process. What
// is rendered is never parsed again.
//
// Thread safety: immutable after Parse; Render may run on many threads.

#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "renga/status.h"
#include "renga/tokenizer.h"
#include "text/jinja/ast.h"
#include "text/jinja/budget.h"
#include "text/jinja/evaluator.h"

namespace renga::jinja {

class Template {
 public:
  // Errors name line and column.
  static StatusOr<std::unique_ptr<Template>> Parse(std::string_view source);

  // See Evaluator::Run for the codes of the errors.
  StatusOr<MarkedText> Render(const Variables& context,
                              const RenderLimits& limits = {}) const;

 private:
  Template(std::string source, Block block)
      : source_(std::move(source)), block_(std::move(block)) {}

  const std::string source_;
  const Block block_;
};

}  // namespace renga::jinja
