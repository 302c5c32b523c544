#include "text/jinja/template.h"

#include <utility>

#include "base/status_macros.h"
#include "text/jinja/lexer.h"
#include "text/jinja/parser.h"

namespace renga::jinja {

StatusOr<std::unique_ptr<Template>> Template::Parse(std::string_view source) {
  std::string normal = NormalizeSource(source);
  RENGA_ASSIGN_OR_RETURN(Block block, ParseTemplate(normal));
  return std::unique_ptr<Template>(new Template(std::move(normal), std::move(block)));
}

StatusOr<MarkedText> Template::Render(const Variables& context,
                                      const RenderLimits& limits) const {
  return Evaluator(source_, context, limits).Run(block_);
}

}  // namespace renga::jinja
