#include "text/jinja/expression_parser.h"

#include <algorithm>
#include <charconv>

#include "base/status_macros.h"
#include "text/jinja/filters.h"
#include "text/jinja/marked.h"
#include "text/jinja/tests.h"

namespace renga::jinja {
namespace {

using Kind = Expr::Kind;

Value TrustedString(std::string text) {
  return Value::String(TrustedText(std::move(text)));
}

}  // namespace

bool TokenCursor::SkipOperator(std::string_view op) {
  if (!AtOperator(op)) return false;
  Next();
  return true;
}

bool TokenCursor::SkipName(std::string_view name) {
  if (!AtName(name)) return false;
  Next();
  return true;
}

Status TokenCursor::ExpectOperator(std::string_view op) {
  if (SkipOperator(op)) return OkStatus();
  return Unexpected("'" + std::string(op) + "'");
}

Status TokenCursor::ExpectName(std::string_view name) {
  if (SkipName(name)) return OkStatus();
  return Unexpected("'" + std::string(name) + "'");
}

StatusOr<std::string> TokenCursor::TakeName() {
  if (Peek().kind != Token::Kind::kName) return Unexpected("a name");
  return Next().text;
}

Status TokenCursor::Unexpected(std::string_view wanted) const {
  std::string found;
  switch (Peek().kind) {
    case Token::Kind::kBlockEnd:
    case Token::Kind::kVariableEnd:
      found = "the end of the tag";
      break;
    case Token::Kind::kEnd:
      found = "the end of the template";
      break;
    default:
      found = "'" + Peek().text + "'";
  }
  return ErrorHere("expected " + std::string(wanted) + ", found " + found);
}

// Counts one level of the recursion that follows nested source.
class DepthGuard {
 public:
  explicit DepthGuard(ExpressionParser& parser) : parser_(parser) { ++parser_.depth_; }
  ~DepthGuard() { --parser_.depth_; }
  DepthGuard(const DepthGuard&) = delete;
  DepthGuard& operator=(const DepthGuard&) = delete;
  bool TooDeep() const { return parser_.depth_ > kMaxTreeHeight; }

 private:
  ExpressionParser& parser_;
};

std::unique_ptr<Expr> ExpressionParser::New(Kind kind) const {
  auto node = std::make_unique<Expr>();
  node->kind = kind;
  node->offset = cursor_.Peek().offset;
  return node;
}

StatusOr<ExprPtr> ExpressionParser::Finish(std::unique_ptr<Expr> node) const {
  for (const ExprPtr& child : node->children) {
    if (child) node->height = std::max(node->height, child->height + 1);
  }
  for (const Keyword& keyword : node->keywords) {
    node->height = std::max(node->height, keyword.value->height + 1);
  }
  if (node->height > kMaxTreeHeight) return cursor_.ErrorHere("nested too deeply");
  return ExprPtr(std::move(node));
}

StatusOr<ExprPtr> ExpressionParser::Expression() {
  DepthGuard guard(*this);
  if (guard.TooDeep()) return cursor_.ErrorHere("nested too deeply");
  RENGA_ASSIGN_OR_RETURN(ExprPtr node, Or());
  while (cursor_.AtName("if")) {
    auto conditional = New(Kind::kConditional);
    cursor_.Next();
    RENGA_ASSIGN_OR_RETURN(ExprPtr condition, Or());
    ExprPtr otherwise;
    if (cursor_.SkipName("else")) {
      RENGA_ASSIGN_OR_RETURN(otherwise, Expression());
    }
    conditional->children.push_back(std::move(condition));
    conditional->children.push_back(std::move(node));
    conditional->children.push_back(std::move(otherwise));
    RENGA_ASSIGN_OR_RETURN(node, Finish(std::move(conditional)));
  }
  return node;
}

StatusOr<ExprPtr> ExpressionParser::NoConditional() {
  DepthGuard guard(*this);
  if (guard.TooDeep()) return cursor_.ErrorHere("nested too deeply");
  return Or();
}

StatusOr<ExprPtr> ExpressionParser::TupleOrExpression(bool with_conditional) {
  auto tuple = New(Kind::kTuple);
  bool comma = false;
  while (true) {
    const Token& token = cursor_.Peek();
    const bool ends = token.kind == Token::Kind::kBlockEnd ||
                      token.kind == Token::Kind::kVariableEnd || cursor_.AtOperator(")");
    if (ends && (comma || tuple->children.empty())) break;
    RENGA_ASSIGN_OR_RETURN(ExprPtr item,
                           with_conditional ? Expression() : NoConditional());
    tuple->children.push_back(std::move(item));
    if (!cursor_.SkipOperator(",")) break;
    comma = true;
  }
  if (tuple->children.empty()) return cursor_.Unexpected("an expression");
  if (!comma) {
    // Children are const only towards readers of the finished tree.
    return std::move(tuple->children.front());
  }
  return Finish(std::move(tuple));
}

StatusOr<ExprPtr> ExpressionParser::Or() {
  RENGA_ASSIGN_OR_RETURN(ExprPtr node, And());
  while (cursor_.AtName("or")) {
    auto either = New(Kind::kOr);
    cursor_.Next();
    RENGA_ASSIGN_OR_RETURN(ExprPtr right, And());
    either->children.push_back(std::move(node));
    either->children.push_back(std::move(right));
    RENGA_ASSIGN_OR_RETURN(node, Finish(std::move(either)));
  }
  return node;
}

StatusOr<ExprPtr> ExpressionParser::And() {
  RENGA_ASSIGN_OR_RETURN(ExprPtr node, Not());
  while (cursor_.AtName("and")) {
    auto both = New(Kind::kAnd);
    cursor_.Next();
    RENGA_ASSIGN_OR_RETURN(ExprPtr right, Not());
    both->children.push_back(std::move(node));
    both->children.push_back(std::move(right));
    RENGA_ASSIGN_OR_RETURN(node, Finish(std::move(both)));
  }
  return node;
}

StatusOr<ExprPtr> ExpressionParser::Not() {
  if (!cursor_.AtName("not")) return Compare();
  DepthGuard guard(*this);
  if (guard.TooDeep()) return cursor_.ErrorHere("nested too deeply");
  auto node = New(Kind::kNot);
  cursor_.Next();
  RENGA_ASSIGN_OR_RETURN(ExprPtr operand, Not());
  node->children.push_back(std::move(operand));
  return Finish(std::move(node));
}

StatusOr<ExprPtr> ExpressionParser::Compare() {
  auto node = New(Kind::kCompare);
  RENGA_ASSIGN_OR_RETURN(ExprPtr first, Sum());
  while (true) {
    std::string op;
    for (const std::string_view known : {"==", "!=", "<", "<=", ">", ">="}) {
      if (cursor_.AtOperator(known)) op = known;
    }
    const bool not_in = cursor_.AtName("not") &&
                        cursor_.PeekSecond().kind == Token::Kind::kName &&
                        cursor_.PeekSecond().text == "in";
    if (cursor_.AtName("in")) op = "in";
    if (not_in) {
      op = "not in";
      cursor_.Next();
    }
    if (op.empty()) break;
    cursor_.Next();
    if (node->operators.empty()) node->children.push_back(std::move(first));
    RENGA_ASSIGN_OR_RETURN(ExprPtr operand, Sum());
    node->operators.push_back(op);
    node->children.push_back(std::move(operand));
  }
  if (node->operators.empty()) return first;
  return Finish(std::move(node));
}

StatusOr<ExprPtr> ExpressionParser::Binary(
    std::initializer_list<std::string_view> operators, Rule operand) {
  RENGA_ASSIGN_OR_RETURN(ExprPtr node, (this->*operand)());
  while (std::any_of(operators.begin(), operators.end(),
                     [&](std::string_view op) { return cursor_.AtOperator(op); })) {
    auto binary = New(Kind::kBinary);
    binary->name = cursor_.Next().text;
    RENGA_ASSIGN_OR_RETURN(ExprPtr right, (this->*operand)());
    binary->children.push_back(std::move(node));
    binary->children.push_back(std::move(right));
    RENGA_ASSIGN_OR_RETURN(node, Finish(std::move(binary)));
  }
  return node;
}

StatusOr<ExprPtr> ExpressionParser::Sum() {
  return Binary({"+", "-"}, &ExpressionParser::Concat);
}

StatusOr<ExprPtr> ExpressionParser::Concat() {
  auto node = New(Kind::kConcat);
  RENGA_ASSIGN_OR_RETURN(ExprPtr first, Product());
  if (!cursor_.AtOperator("~")) return first;
  node->children.push_back(std::move(first));
  while (cursor_.SkipOperator("~")) {
    RENGA_ASSIGN_OR_RETURN(ExprPtr next, Product());
    node->children.push_back(std::move(next));
  }
  return Finish(std::move(node));
}

StatusOr<ExprPtr> ExpressionParser::Product() {
  return Binary({"*", "/", "//", "%"}, &ExpressionParser::Power);
}

StatusOr<ExprPtr> ExpressionParser::Power() {
  return Binary({"**"}, &ExpressionParser::UnaryWithFilters);
}

StatusOr<ExprPtr> ExpressionParser::Unary(bool with_filters) {
  DepthGuard guard(*this);
  if (guard.TooDeep()) return cursor_.ErrorHere("nested too deeply");
  ExprPtr node;
  if (cursor_.AtOperator("-") || cursor_.AtOperator("+")) {
    auto signed_node = New(cursor_.AtOperator("-") ? Kind::kNegative : Kind::kPositive);
    cursor_.Next();
    RENGA_ASSIGN_OR_RETURN(ExprPtr operand, Unary(false));
    signed_node->children.push_back(std::move(operand));
    RENGA_ASSIGN_OR_RETURN(node, Finish(std::move(signed_node)));
  } else {
    RENGA_ASSIGN_OR_RETURN(node, Primary());
  }
  RENGA_ASSIGN_OR_RETURN(node, Postfix(std::move(node)));
  return with_filters ? FiltersAndTests(std::move(node)) : std::move(node);
}

StatusOr<ExprPtr> ExpressionParser::Primary() {
  const Token& token = cursor_.Peek();
  switch (token.kind) {
    case Token::Kind::kName:
      return NameOrConstant();
    case Token::Kind::kInteger:
    case Token::Kind::kFloat:
      return Number();
    case Token::Kind::kString: {
      auto node = New(Kind::kLiteral);
      std::string text;
      while (cursor_.Peek().kind == Token::Kind::kString) text += cursor_.Next().text;
      node->value = TrustedString(std::move(text));
      return Finish(std::move(node));
    }
    default:
      if (cursor_.AtOperator("(")) return Parenthesised();
      if (cursor_.AtOperator("[")) return ListDisplay();
      if (cursor_.AtOperator("{")) return DictDisplay();
      return cursor_.Unexpected("an expression");
  }
}

StatusOr<ExprPtr> ExpressionParser::NameOrConstant() {
  auto node = New(Kind::kLiteral);
  const Token token = cursor_.Next();
  const std::string& name = token.text;
  if (name == "true" || name == "True") {
    node->value = Value::Bool(true);
  } else if (name == "false" || name == "False") {
    node->value = Value::Bool(false);
  } else if (name == "none" || name == "None") {
    node->value = Value::None();
  } else {
    node->kind = Kind::kName;
    node->name = name;
  }
  return Finish(std::move(node));
}

StatusOr<ExprPtr> ExpressionParser::Number() {
  auto node = New(Kind::kLiteral);
  const Token token = cursor_.Peek();
  const char* begin = token.text.data();
  const char* end = begin + token.text.size();
  if (token.kind == Token::Kind::kInteger) {
    int64_t value = 0;
    if (std::from_chars(begin, end, value).ec != std::errc()) {
      return cursor_.ErrorHere("the number is too large");
    }
    node->value = Value::Int(value);
  } else {
    double value = 0;
    if (std::from_chars(begin, end, value).ec != std::errc()) {
      return cursor_.ErrorHere("the number is out of range");
    }
    node->value = Value::Float(value);
  }
  cursor_.Next();
  return Finish(std::move(node));
}

StatusOr<ExprPtr> ExpressionParser::Parenthesised() {
  auto empty = New(Kind::kTuple);
  cursor_.Next();
  if (cursor_.SkipOperator(")")) return Finish(std::move(empty));
  RENGA_ASSIGN_OR_RETURN(ExprPtr node, TupleOrExpression());
  RENGA_RETURN_IF_ERROR(cursor_.ExpectOperator(")"));
  return node;
}

StatusOr<ExprPtr> ExpressionParser::ListDisplay() {
  auto node = New(Kind::kList);
  cursor_.Next();
  while (!cursor_.AtOperator("]")) {
    RENGA_ASSIGN_OR_RETURN(ExprPtr item, Expression());
    node->children.push_back(std::move(item));
    if (!cursor_.SkipOperator(",")) break;
  }
  RENGA_RETURN_IF_ERROR(cursor_.ExpectOperator("]"));
  return Finish(std::move(node));
}

StatusOr<ExprPtr> ExpressionParser::DictDisplay() {
  auto node = New(Kind::kDict);
  cursor_.Next();
  while (!cursor_.AtOperator("}")) {
    RENGA_ASSIGN_OR_RETURN(ExprPtr key, Expression());
    RENGA_RETURN_IF_ERROR(cursor_.ExpectOperator(":"));
    RENGA_ASSIGN_OR_RETURN(ExprPtr value, Expression());
    node->children.push_back(std::move(key));
    node->children.push_back(std::move(value));
    if (!cursor_.SkipOperator(",")) break;
  }
  RENGA_RETURN_IF_ERROR(cursor_.ExpectOperator("}"));
  return Finish(std::move(node));
}

StatusOr<ExprPtr> ExpressionParser::Postfix(ExprPtr node) {
  while (true) {
    if (cursor_.AtOperator(".")) {
      RENGA_ASSIGN_OR_RETURN(node, Attribute(std::move(node)));
    } else if (cursor_.AtOperator("[")) {
      RENGA_ASSIGN_OR_RETURN(node, Subscript(std::move(node)));
    } else if (cursor_.AtOperator("(")) {
      auto call = New(Kind::kCall);
      call->children.push_back(std::move(node));
      RENGA_RETURN_IF_ERROR(Arguments(*call));
      RENGA_ASSIGN_OR_RETURN(node, Finish(std::move(call)));
    } else {
      return node;
    }
  }
}

StatusOr<ExprPtr> ExpressionParser::Attribute(ExprPtr object) {
  auto node = New(Kind::kAttribute);
  cursor_.Next();
  node->children.push_back(std::move(object));
  if (cursor_.Peek().kind == Token::Kind::kInteger) {
    node->kind = Kind::kSubscript;
    RENGA_ASSIGN_OR_RETURN(ExprPtr index, Number());
    node->children.push_back(std::move(index));
  } else {
    RENGA_ASSIGN_OR_RETURN(node->name, cursor_.TakeName());
  }
  return Finish(std::move(node));
}

StatusOr<ExprPtr> ExpressionParser::Subscript(ExprPtr object) {
  auto node = New(Kind::kSubscript);
  cursor_.Next();
  node->children.push_back(std::move(object));
  bool slice = false;
  ExprPtr part;
  for (int parts = 1;; ++parts) {
    if (!cursor_.AtOperator(":") && !cursor_.AtOperator("]")) {
      RENGA_ASSIGN_OR_RETURN(part, Expression());
    }
    node->children.push_back(std::move(part));
    if (parts == 3 || !cursor_.SkipOperator(":")) break;
    slice = true;
  }
  RENGA_RETURN_IF_ERROR(cursor_.ExpectOperator("]"));
  if (slice) {
    node->kind = Kind::kSlice;
    node->children.resize(4);
  } else if (!node->children[1]) {
    return cursor_.ErrorHere("expected an index");
  }
  return Finish(std::move(node));
}

Status ExpressionParser::Arguments(Expr& call) {
  RENGA_RETURN_IF_ERROR(cursor_.ExpectOperator("("));
  while (!cursor_.AtOperator(")")) {
    const Token& second = cursor_.PeekSecond();
    const bool keyword = cursor_.Peek().kind == Token::Kind::kName &&
                         second.kind == Token::Kind::kOperator && second.text == "=";
    if (keyword) {
      Keyword argument{cursor_.Next().text, nullptr};
      cursor_.Next();
      RENGA_ASSIGN_OR_RETURN(argument.value, Expression());
      call.keywords.push_back(std::move(argument));
    } else {
      if (cursor_.AtOperator("*") || cursor_.AtOperator("**")) {
        return cursor_.ErrorHere("unpacked arguments are not supported");
      }
      if (!call.keywords.empty()) {
        return cursor_.ErrorHere("a positional argument behind a named one");
      }
      RENGA_ASSIGN_OR_RETURN(ExprPtr argument, Expression());
      call.children.push_back(std::move(argument));
    }
    if (!cursor_.SkipOperator(",")) break;
  }
  return cursor_.ExpectOperator(")");
}

StatusOr<ExprPtr> ExpressionParser::FiltersAndTests(ExprPtr node) {
  while (true) {
    if (cursor_.SkipOperator("|")) {
      RENGA_ASSIGN_OR_RETURN(node, Filter(std::move(node)));
    } else if (cursor_.SkipName("is")) {
      RENGA_ASSIGN_OR_RETURN(node, Test(std::move(node)));
    } else if (cursor_.AtOperator("(")) {
      RENGA_ASSIGN_OR_RETURN(node, Postfix(std::move(node)));
    } else {
      return node;
    }
  }
}

StatusOr<ExprPtr> ExpressionParser::Filter(ExprPtr input) {
  auto node = New(Kind::kFilter);
  if (!HasFilter(cursor_.Peek().text)) return cursor_.Unexpected("the name of a filter");
  RENGA_ASSIGN_OR_RETURN(node->name, cursor_.TakeName());
  node->children.push_back(std::move(input));
  if (cursor_.AtOperator("(")) RENGA_RETURN_IF_ERROR(Arguments(*node));
  return Finish(std::move(node));
}

StatusOr<std::vector<ExprPtr>> ExpressionParser::FilterChain(bool leading_name) {
  std::vector<ExprPtr> filters;
  while (leading_name || cursor_.SkipOperator("|")) {
    leading_name = false;
    RENGA_ASSIGN_OR_RETURN(ExprPtr filter, Filter(nullptr));
    filters.push_back(std::move(filter));
  }
  return filters;
}

bool ExpressionParser::AtTestArgument() const {
  switch (cursor_.Peek().kind) {
    case Token::Kind::kString:
    case Token::Kind::kInteger:
    case Token::Kind::kFloat:
      return true;
    case Token::Kind::kName:
      return !cursor_.AtName("else") && !cursor_.AtName("or") && !cursor_.AtName("and") &&
             !cursor_.AtName("is") && !cursor_.AtName("if") && !cursor_.AtName("not") &&
             !cursor_.AtName("in");
    default:
      return cursor_.AtOperator("[") || cursor_.AtOperator("{");
  }
}

StatusOr<ExprPtr> ExpressionParser::Test(ExprPtr input) {
  auto negated = New(Kind::kNot);
  const bool negate = cursor_.SkipName("not");
  auto node = New(Kind::kTest);
  if (!HasTest(cursor_.Peek().text)) return cursor_.Unexpected("the name of a test");
  RENGA_ASSIGN_OR_RETURN(node->name, cursor_.TakeName());
  node->children.push_back(std::move(input));
  if (cursor_.AtOperator("(")) {
    RENGA_RETURN_IF_ERROR(Arguments(*node));
  } else if (AtTestArgument()) {
    RENGA_ASSIGN_OR_RETURN(ExprPtr argument, Primary());
    RENGA_ASSIGN_OR_RETURN(argument, Postfix(std::move(argument)));
    node->children.push_back(std::move(argument));
  }
  RENGA_ASSIGN_OR_RETURN(ExprPtr test, Finish(std::move(node)));
  if (!negate) return test;
  negated->children.push_back(std::move(test));
  return Finish(std::move(negated));
}

}  // namespace renga::jinja
