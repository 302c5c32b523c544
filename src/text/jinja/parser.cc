#include "text/jinja/parser.h"

#include <algorithm>
#include <utility>

#include "base/status_macros.h"
#include "text/jinja/expression_parser.h"
#include "text/jinja/lexer.h"
#include "text/utf8.h"

namespace renga::jinja {
namespace {

using Kind = Stmt::Kind;

constexpr int kMaxBlockDepth = 40;
constexpr size_t kMaxSourceBytes = size_t{1} << 20;

class StatementParser {
 public:
  StatementParser(std::string_view source, std::vector<Token> tokens)
      : cursor_(source, std::move(tokens)), expressions_(cursor_) {}

  StatusOr<Block> Run() {
    RENGA_ASSIGN_OR_RETURN(Block block, ParseBlock({}));
    if (cursor_.Peek().kind != Token::Kind::kEnd) {
      return cursor_.Unexpected("a statement");
    }
    return block;
  }

 private:
  using Names = std::initializer_list<std::string_view>;
  using StmtPtr = std::unique_ptr<Stmt>;

  // Statements up to a tag that begins with one of `ends`, which stays unread behind its
  // "{%"; with no `ends`, up to the end of the template.
  StatusOr<Block> ParseBlock(Names ends);
  // A body, its end tag `end` and the "%}" of both.
  StatusOr<Block> ParseBody(std::string_view end);
  Status EndTag();
  bool AtAny(Names names) const {
    return std::any_of(names.begin(), names.end(),
                       [&](std::string_view name) { return cursor_.AtName(name); });
  }
  StmtPtr New(Kind kind) const {
    auto node = std::make_unique<Stmt>();
    node->kind = kind;
    node->offset = cursor_.Peek().offset;
    return node;
  }

  StatusOr<StmtPtr> Output();
  StatusOr<StmtPtr> Statement();
  StatusOr<StmtPtr> If();
  StatusOr<StmtPtr> For();
  StatusOr<StmtPtr> Set();
  StatusOr<StmtPtr> MacroDefinition();
  StatusOr<StmtPtr> Call();
  StatusOr<StmtPtr> FilterBlock();
  StatusOr<StmtPtr> With();
  StatusOr<StmtPtr> Generation();
  StatusOr<StmtPtr> LoopControl();
  StatusOr<Target> ParseTarget();
  Status Parameters(std::vector<Parameter>& parameters);

  TokenCursor cursor_;
  ExpressionParser expressions_;
  int depth_ = 0;
  int loops_ = 0;  // Around the statement, inside the same macro.
};

StatusOr<Block> StatementParser::ParseBlock(Names ends) {
  Block block;
  if (++depth_ > kMaxBlockDepth) return cursor_.ErrorHere("blocks nested too deeply");
  while (true) {
    const Token& token = cursor_.Peek();
    if (token.kind == Token::Kind::kEnd) {
      if (ends.size() > 0) {
        return cursor_.ErrorHere("the template ends before '" +
                                 std::string(*(ends.end() - 1)) + "'");
      }
      break;
    }
    if (token.kind == Token::Kind::kData) {
      StmtPtr data = New(Kind::kData);
      data->data = cursor_.Next().text;
      block.push_back(std::move(data));
      continue;
    }
    const bool output = token.kind == Token::Kind::kVariableBegin;
    cursor_.Next();
    if (!output && AtAny(ends)) break;
    RENGA_ASSIGN_OR_RETURN(StmtPtr statement, output ? Output() : Statement());
    block.push_back(std::move(statement));
  }
  --depth_;
  return block;
}

StatusOr<Block> StatementParser::ParseBody(std::string_view end) {
  RENGA_RETURN_IF_ERROR(EndTag());
  RENGA_ASSIGN_OR_RETURN(Block body, ParseBlock({end}));
  cursor_.Next();
  RENGA_RETURN_IF_ERROR(EndTag());
  return body;
}

Status StatementParser::EndTag() {
  if (cursor_.Peek().kind != Token::Kind::kBlockEnd) {
    return cursor_.Unexpected("the end of the tag");
  }
  cursor_.Next();
  return OkStatus();
}

StatusOr<StatementParser::StmtPtr> StatementParser::Output() {
  StmtPtr node = New(Kind::kOutput);
  RENGA_ASSIGN_OR_RETURN(node->expr, expressions_.TupleOrExpression());
  if (cursor_.Peek().kind != Token::Kind::kVariableEnd) {
    return cursor_.Unexpected("'}}'");
  }
  cursor_.Next();
  return node;
}

StatusOr<StatementParser::StmtPtr> StatementParser::Statement() {
  if (cursor_.AtName("if")) return If();
  if (cursor_.AtName("for")) return For();
  if (cursor_.AtName("set")) return Set();
  if (cursor_.AtName("macro")) return MacroDefinition();
  if (cursor_.AtName("call")) return Call();
  if (cursor_.AtName("filter")) return FilterBlock();
  if (cursor_.AtName("with")) return With();
  if (cursor_.AtName("generation")) return Generation();
  if (cursor_.AtName("break") || cursor_.AtName("continue")) return LoopControl();
  if (cursor_.Peek().kind != Token::Kind::kName) return cursor_.Unexpected("a statement");
  return cursor_.ErrorHere("the statement '" + cursor_.Peek().text +
                           "' is unknown or out of place");
}

StatusOr<StatementParser::StmtPtr> StatementParser::If() {
  StmtPtr node = New(Kind::kIf);
  bool has_else = false;
  while (true) {
    Branch branch;
    if (cursor_.SkipName("else")) {
      has_else = true;
    } else {
      cursor_.Next();  // "if" or "elif".
      RENGA_ASSIGN_OR_RETURN(branch.condition, expressions_.TupleOrExpression(false));
    }
    RENGA_RETURN_IF_ERROR(EndTag());
    if (has_else) {
      RENGA_ASSIGN_OR_RETURN(branch.body, ParseBlock({"endif"}));
    } else {
      RENGA_ASSIGN_OR_RETURN(branch.body, ParseBlock({"elif", "else", "endif"}));
    }
    node->branches.push_back(std::move(branch));
    if (cursor_.SkipName("endif")) break;
  }
  RENGA_RETURN_IF_ERROR(EndTag());
  return node;
}

StatusOr<Target> StatementParser::ParseTarget() {
  Target target;
  const bool parenthesis = cursor_.SkipOperator("(");
  while (true) {
    RENGA_ASSIGN_OR_RETURN(std::string name, cursor_.TakeName());
    target.names.push_back(std::move(name));
    if (!cursor_.SkipOperator(",")) break;
    target.unpacks = true;
    if (cursor_.Peek().kind != Token::Kind::kName || cursor_.AtName("in")) break;
  }
  if (parenthesis) RENGA_RETURN_IF_ERROR(cursor_.ExpectOperator(")"));
  return target;
}

StatusOr<StatementParser::StmtPtr> StatementParser::For() {
  StmtPtr node = New(Kind::kFor);
  cursor_.Next();
  RENGA_ASSIGN_OR_RETURN(node->target, ParseTarget());
  RENGA_RETURN_IF_ERROR(cursor_.ExpectName("in"));
  RENGA_ASSIGN_OR_RETURN(node->expr, expressions_.TupleOrExpression(false));
  if (cursor_.SkipName("if")) {
    RENGA_ASSIGN_OR_RETURN(node->filter, expressions_.Expression());
  }
  if (cursor_.AtName("recursive")) {
    return cursor_.ErrorHere("recursive loops are not supported");
  }
  RENGA_RETURN_IF_ERROR(EndTag());
  ++loops_;
  RENGA_ASSIGN_OR_RETURN(node->body, ParseBlock({"else", "endfor"}));
  --loops_;
  if (cursor_.SkipName("else")) {
    RENGA_RETURN_IF_ERROR(EndTag());
    RENGA_ASSIGN_OR_RETURN(node->otherwise, ParseBlock({"endfor"}));
  }
  cursor_.Next();
  RENGA_RETURN_IF_ERROR(EndTag());
  return node;
}

StatusOr<StatementParser::StmtPtr> StatementParser::Set() {
  StmtPtr node = New(Kind::kSet);
  cursor_.Next();
  RENGA_ASSIGN_OR_RETURN(node->target, ParseTarget());
  if (!node->target.unpacks && cursor_.SkipOperator(".")) {
    RENGA_ASSIGN_OR_RETURN(node->target.field, cursor_.TakeName());
  }
  if (cursor_.SkipOperator("=")) {
    RENGA_ASSIGN_OR_RETURN(node->expr, expressions_.TupleOrExpression());
    RENGA_RETURN_IF_ERROR(EndTag());
    return node;
  }
  if (node->target.unpacks) return cursor_.Unexpected("'='");
  node->kind = Kind::kSetBlock;
  RENGA_ASSIGN_OR_RETURN(node->filters, expressions_.FilterChain(false));
  RENGA_ASSIGN_OR_RETURN(node->body, ParseBody("endset"));
  return node;
}

Status StatementParser::Parameters(std::vector<Parameter>& parameters) {
  RENGA_RETURN_IF_ERROR(cursor_.ExpectOperator("("));
  while (!cursor_.AtOperator(")")) {
    Parameter parameter;
    RENGA_ASSIGN_OR_RETURN(parameter.name, cursor_.TakeName());
    if (cursor_.SkipOperator("=")) {
      RENGA_ASSIGN_OR_RETURN(parameter.fallback, expressions_.Expression());
    }
    parameters.push_back(std::move(parameter));
    if (!cursor_.SkipOperator(",")) break;
  }
  return cursor_.ExpectOperator(")");
}

StatusOr<StatementParser::StmtPtr> StatementParser::MacroDefinition() {
  StmtPtr node = New(Kind::kMacro);
  cursor_.Next();
  RENGA_ASSIGN_OR_RETURN(node->name, cursor_.TakeName());
  RENGA_RETURN_IF_ERROR(Parameters(node->parameters));
  const int loops = std::exchange(loops_, 0);
  RENGA_ASSIGN_OR_RETURN(node->body, ParseBody("endmacro"));
  loops_ = loops;
  return node;
}

StatusOr<StatementParser::StmtPtr> StatementParser::Call() {
  StmtPtr node = New(Kind::kCall);
  cursor_.Next();
  if (cursor_.AtOperator("(")) RENGA_RETURN_IF_ERROR(Parameters(node->parameters));
  RENGA_ASSIGN_OR_RETURN(node->expr, expressions_.Expression());
  if (node->expr->kind != Expr::Kind::kCall) return cursor_.Unexpected("a call");
  const int loops = std::exchange(loops_, 0);
  RENGA_ASSIGN_OR_RETURN(node->body, ParseBody("endcall"));
  loops_ = loops;
  return node;
}

StatusOr<StatementParser::StmtPtr> StatementParser::FilterBlock() {
  StmtPtr node = New(Kind::kFilter);
  cursor_.Next();
  RENGA_ASSIGN_OR_RETURN(node->filters, expressions_.FilterChain(true));
  RENGA_ASSIGN_OR_RETURN(node->body, ParseBody("endfilter"));
  return node;
}

StatusOr<StatementParser::StmtPtr> StatementParser::With() {
  StmtPtr node = New(Kind::kWith);
  cursor_.Next();
  while (cursor_.Peek().kind != Token::Kind::kBlockEnd) {
    Target target;
    RENGA_ASSIGN_OR_RETURN(std::string name, cursor_.TakeName());
    target.names.push_back(std::move(name));
    RENGA_RETURN_IF_ERROR(cursor_.ExpectOperator("="));
    RENGA_ASSIGN_OR_RETURN(ExprPtr value, expressions_.Expression());
    node->bindings.emplace_back(std::move(target), std::move(value));
    if (!cursor_.SkipOperator(",")) break;
  }
  RENGA_ASSIGN_OR_RETURN(node->body, ParseBody("endwith"));
  return node;
}

// Marks the assistant's words for training; here it only has the scope of the reference.
StatusOr<StatementParser::StmtPtr> StatementParser::Generation() {
  StmtPtr node = New(Kind::kScope);
  cursor_.Next();
  RENGA_ASSIGN_OR_RETURN(node->body, ParseBody("endgeneration"));
  return node;
}

StatusOr<StatementParser::StmtPtr> StatementParser::LoopControl() {
  if (loops_ == 0) {
    return cursor_.ErrorHere("'" + cursor_.Peek().text + "' outside of a loop");
  }
  StmtPtr node = New(cursor_.AtName("break") ? Kind::kBreak : Kind::kContinue);
  cursor_.Next();
  RENGA_RETURN_IF_ERROR(EndTag());
  return node;
}

}  // namespace

StatusOr<Block> ParseTemplate(std::string_view source) {
  if (source.size() > kMaxSourceBytes) {
    return InvalidArgument("", "the template is longer than 1 MiB");
  }
  if (const auto bad = FindInvalidUtf8(source)) {
    return ErrorAt(source, *bad, "the template is not UTF-8");
  }
  RENGA_ASSIGN_OR_RETURN(std::vector<Token> tokens, Lex(source));
  return StatementParser(source, std::move(tokens)).Run();
}

}  // namespace renga::jinja
