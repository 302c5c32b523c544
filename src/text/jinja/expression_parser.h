// The expression half of the parser, over a cursor on the tokens.
//
// Thread rule: one caller.

#pragma once

#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "renga/status.h"
#include "text/jinja/ast.h"
#include "text/jinja/lexer.h"

namespace renga::jinja {

// Reads tokens in order; the last one (kEnd) is never passed.
class TokenCursor {
 public:
  TokenCursor(std::string_view source, std::vector<Token> tokens)
      : source_(source), tokens_(std::move(tokens)) {}

  const Token& Peek() const { return tokens_[at_]; }
  const Token& PeekSecond() const {
    return tokens_[at_ + 1 < tokens_.size() ? at_ + 1 : at_];
  }
  Token Next() {
    const Token& token = tokens_[at_];
    if (at_ + 1 < tokens_.size()) ++at_;
    return token;
  }
  bool AtOperator(std::string_view op) const {
    return Peek().kind == Token::Kind::kOperator && Peek().text == op;
  }
  bool AtName(std::string_view name) const {
    return Peek().kind == Token::Kind::kName && Peek().text == name;
  }
  bool SkipOperator(std::string_view op);
  bool SkipName(std::string_view name);
  Status ExpectOperator(std::string_view op);
  Status ExpectName(std::string_view name);
  StatusOr<std::string> TakeName();

  Status ErrorHere(std::string_view message) const {
    return ErrorAt(source_, Peek().offset, message);
  }
  Status Unexpected(std::string_view wanted) const;

 private:
  const std::string_view source_;
  const std::vector<Token> tokens_;
  size_t at_ = 0;
};

class ExpressionParser {
 public:
  explicit ExpressionParser(TokenCursor& cursor) : cursor_(cursor) {}

  // Also used by statements.
  StatusOr<ExprPtr> Expression();     // With "a if b else c".
  StatusOr<ExprPtr> NoConditional();  // Without.
  // Expressions with commas between: a tuple if there is a comma.
  StatusOr<ExprPtr> TupleOrExpression(bool with_conditional = true);
  // "|a|b(c)" behind nothing: each filter's input is absent.
  StatusOr<std::vector<ExprPtr>> FilterChain(bool leading_name);
  // Fills children and keywords from "(...)" at the cursor.
  Status Arguments(Expr& call);

 private:
  friend class DepthGuard;
  using Rule = StatusOr<ExprPtr> (ExpressionParser::*)();

  StatusOr<ExprPtr> Or();
  StatusOr<ExprPtr> And();
  StatusOr<ExprPtr> Not();
  StatusOr<ExprPtr> Compare();
  StatusOr<ExprPtr> Sum();
  StatusOr<ExprPtr> Concat();
  StatusOr<ExprPtr> Product();
  StatusOr<ExprPtr> Power();
  StatusOr<ExprPtr> Unary(bool with_filters);
  StatusOr<ExprPtr> UnaryWithFilters() { return Unary(true); }
  StatusOr<ExprPtr> Primary();
  StatusOr<ExprPtr> NameOrConstant();
  StatusOr<ExprPtr> Number();
  StatusOr<ExprPtr> Parenthesised();
  StatusOr<ExprPtr> ListDisplay();
  StatusOr<ExprPtr> DictDisplay();
  StatusOr<ExprPtr> Postfix(ExprPtr node);
  StatusOr<ExprPtr> FiltersAndTests(ExprPtr node);
  StatusOr<ExprPtr> Attribute(ExprPtr object);
  StatusOr<ExprPtr> Subscript(ExprPtr object);
  StatusOr<ExprPtr> Filter(ExprPtr input);
  StatusOr<ExprPtr> Test(ExprPtr input);
  StatusOr<ExprPtr> Binary(std::initializer_list<std::string_view> operators,
                           Rule operand);
  bool AtTestArgument() const;

  std::unique_ptr<Expr> New(Expr::Kind kind) const;
  // Sets the height; refuses a tree that is too high.
  StatusOr<ExprPtr> Finish(std::unique_ptr<Expr> node) const;

  TokenCursor& cursor_;
  int depth_ = 0;  // Of the recursion.
};

}  // namespace renga::jinja
