#include "text/jinja/template.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "tests/text/json_support.h"

namespace renga::jinja {
namespace {

using test::ReadJson;
using test::Text;
using test::ToVariables;
using testing::HasSubstr;

StatusOr<MarkedText> RenderSource(std::string_view source, const Variables& context,
                                  const RenderLimits& limits = {}) {
  const StatusOr<std::unique_ptr<Template>> parsed = Template::Parse(source);
  if (!parsed.ok()) return parsed.status();
  return (*parsed)->Render(context, limits);
}

// tests/golden/cases/templates.json: whole behaviours that other servers got wrong.
TEST(TemplateTest, ReportedFaultsRenderAsTheReference) {
  const boost::json::value file = ReadJson("golden/cases/templates.json");
  for (const auto& [name, golden] : file.at("cases").as_object()) {
    SCOPED_TRACE(name);
    const StatusOr<MarkedText> rendered =
        RenderSource(Text(golden.at("template")), ToVariables(golden.at("context")));
    if (const boost::json::value* error = golden.as_object().if_contains("error")) {
      ASSERT_FALSE(rendered.ok());
      EXPECT_EQ("TemplateError: " + rendered.status().message(), Text(*error));
      EXPECT_EQ(rendered.status().code(), StatusCode::kFailedPrecondition);
      continue;
    }
    ASSERT_TRUE(rendered.ok()) << rendered.status().ToString();
    EXPECT_EQ(rendered->text, Text(golden.at("text")));
  }
}

// tests/golden/cases/template_cases.json: the language, construct by construct.
TEST(TemplateTest, EveryConstructRendersAsTheReference) {
  const boost::json::value file = ReadJson("golden/cases/template_cases.json");
  const Variables context = ToVariables(file.at("context"));
  for (const auto& golden : file.at("cases").as_array()) {
    SCOPED_TRACE(Text(golden.at("name")) + ": " + Text(golden.at("template")));
    const StatusOr<MarkedText> rendered =
        RenderSource(Text(golden.at("template")), context);
    if (golden.as_object().contains("error")) {
      EXPECT_FALSE(rendered.ok()) << rendered->text;
      continue;
    }
    EXPECT_TRUE(rendered.ok()) << rendered.status().ToString();
    if (!rendered.ok()) continue;
    EXPECT_EQ(rendered->text, Text(golden.at("text")));
  }
}

TEST(TemplateTest, ErrorsNameLineAndColumn) {
  const auto message = [](std::string_view source) {
    return RenderSource(source, {}).status().message();
  };
  EXPECT_EQ(message("{% if %}"),
            "line 1, column 7: expected an expression, found the end of the tag");
  EXPECT_THAT(message("a\nbé{{ x. }}"), HasSubstr("line 2, column 9: expected a name"));
  EXPECT_THAT(message("\n\n  {{ 1 + 'a' }}"), HasSubstr("line 3, column 8: unsupported"));
  EXPECT_THAT(message("{% for a in b %}\n{{ missing.x }}{% endfor %}{{ q.r }}"),
              HasSubstr("line 2, column"));
}

TEST(TemplateTest, OneTemplateRendersManyTimes) {
  const auto parsed = Template::Parse(
      "{% set ns = namespace(n=0) %}"
      "{% set ns.n = ns.n + 1 %}{{ ns.n }}");
  ASSERT_TRUE(parsed.ok());
  EXPECT_EQ((*parsed)->Render({})->text, "1");
  EXPECT_EQ((*parsed)->Render({})->text, "1");
}

std::string Repeated(std::string_view text, int times) {
  std::string out;
  for (int i = 0; i < times; ++i) out += text;
  return out;
}

TEST(TemplateTest, DeepNestingIsRefusedWithoutRecursion) {
  for (const auto& [open, close] :
       std::vector<std::pair<std::string, std::string>>{{"(", ")"},
                                                        {"[", "]"},
                                                        {"{'a':", "}"},
                                                        {"-", ""},
                                                        {"not ", ""},
                                                        {"1 if 1 else ", ""},
                                                        {"1 + ", ""},
                                                        {"1 or ", ""},
                                                        {"x|trim is string and ", ""},
                                                        {"range(", ")"}}) {
    SCOPED_TRACE(open);
    const std::string source =
        "{{ " + Repeated(open, 100'000) + "1" + Repeated(close, 100'000) + " }}";
    EXPECT_FALSE(RenderSource(source, {}).ok());
  }
  EXPECT_FALSE(RenderSource("{{ x" + Repeated(".a", 100'000) + " }}", {}).ok());
  EXPECT_FALSE(RenderSource("{{ x" + Repeated("|trim", 100'000) + " }}", {}).ok());
  EXPECT_FALSE(RenderSource(Repeated("{% if 1 %}", 50'000), {}).ok());
  EXPECT_TRUE(
      RenderSource("{{ " + Repeated("(", 30) + "1" + Repeated(")", 30) + " }}", {}).ok());
}

TEST(TemplateTest, EveryBudgetEndsTheRendering) {
  const auto code = [](std::string_view source, const RenderLimits& limits) {
    return RenderSource(source, {}, limits).status().code();
  };
  constexpr auto kExceeded = StatusCode::kResourceExhausted;
  EXPECT_EQ(code("{% for i in range(1000) %}{{ i }}{% endfor %}", {.max_steps = 500}),
            kExceeded);
  EXPECT_EQ(code("{% for i in range(1000) %}xxxxxxxxxx{% endfor %}", {.max_bytes = 5000}),
            kExceeded);
  EXPECT_EQ(code("{% for i in range(1000) %}{% endfor %}", {.max_rounds = 999}),
            kExceeded);
  EXPECT_EQ(code("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", {}), kExceeded);
  EXPECT_EQ(code("{{ range(1000000000000) }}", {}), kExceeded);
  EXPECT_EQ(code("{{ 'aaaaaaaaaa' * 1000000000000 }}", {}), kExceeded);
  EXPECT_EQ(code("{{ [0] * 1000000000000 }}", {}), kExceeded);
}

// A value can stand for 2^60 nodes though it holds 60 lists.
TEST(TemplateTest, ValuesThatShareTheirPartsAreChargedInFull) {
  const std::string build =
      "{% set ns = namespace(x=[1]) %}"
      "{% for i in range(60) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}";
  for (const char* use :
       {"{{ ns.x }}", "{{ ns.x|tojson }}", "{{ ns.x == [ns.x] }}", "{{ ns.x|string }}",
        "{{ [ns.x]|unique }}", "{{ 1 in ns.x }}", "{{ [ns.x]|join }}",
        "{{ [ns.x].index(ns.x) }}", "{{ ns.x ~ '' }}"}) {
    SCOPED_TRACE(use);
    EXPECT_EQ(RenderSource(build + use, {}).status().code(),
              StatusCode::kResourceExhausted);
  }
}

TEST(TemplateTest, AValueNestedTooDeeplyIsRefused) {
  const StatusOr<MarkedText> rendered = RenderSource(
      "{% set ns = namespace(x=1) %}{% for i in range(200000) %}"
      "{% set ns.x = [ns.x] %}{% endfor %}",
      {});
  EXPECT_EQ(rendered.status().code(), StatusCode::kResourceExhausted);
}

TEST(TemplateTest, ANamespaceThatHoldsItselfEndsWithTheRendering) {
  const StatusOr<MarkedText> rendered = RenderSource(
      "{% set ns = namespace() %}{% set ns.me = ns %}{% macro f() %}{{ ns.me }}{% "
      "endmacro %}"
      "{% set ns.f = f %}{{ ns.me.me.f is callable }}{{ [ns] == [ns] }}",
      {});
  ASSERT_TRUE(rendered.ok()) << rendered.status().ToString();
  EXPECT_EQ(rendered->text, "TrueTrue");
}

// A macro that outlives its scope still sees it.
TEST(TemplateTest, AMacroKeepsItsScope) {
  const StatusOr<MarkedText> rendered = RenderSource(
      "{% set ns = namespace() %}{% for x in [1, 2] %}{% macro f() %}<{{ x }}>{% "
      "endmacro %}"
      "{% if x == 1 %}{% set ns.f = f %}{% endif %}{% endfor %}{{ ns.f() }}",
      {});
  ASSERT_TRUE(rendered.ok()) << rendered.status().ToString();
  EXPECT_EQ(rendered->text, "<1>");
}

// Templates put together from the pieces of the language: none may crash, hang or break
// the rules of marks and UTF-8.
TEST(TemplateTest, RandomTemplatesKeepTheirBounds) {
  const std::vector<std::string> pieces = {"{{ ",
                                           " }}",
                                           "{% ",
                                           " %}",
                                           "{%- ",
                                           " -%}",
                                           "{# ",
                                           " #}",
                                           "if ",
                                           "else",
                                           "elif ",
                                           "endif",
                                           "for x in xs",
                                           "endfor",
                                           "set x = ",
                                           "set ns.a = ",
                                           "endset",
                                           "macro f(a, b=1)",
                                           "endmacro",
                                           "call f(1)",
                                           "endcall",
                                           "filter upper",
                                           "endfilter",
                                           "raw",
                                           "endraw",
                                           "x",
                                           "xs",
                                           "messages",
                                           "name",
                                           "ns",
                                           "loop",
                                           ".content",
                                           ".items()",
                                           "[0]",
                                           "[1:]",
                                           "[::-1]",
                                           "(",
                                           ")",
                                           "[",
                                           "]",
                                           "{",
                                           "}",
                                           "'a'",
                                           "'é\\n'",
                                           "1",
                                           "2.5",
                                           "none",
                                           "true",
                                           "+",
                                           "-",
                                           "*",
                                           "/",
                                           "//",
                                           "%",
                                           "**",
                                           "~",
                                           "==",
                                           "<",
                                           " in ",
                                           " not ",
                                           " and ",
                                           " or ",
                                           " is ",
                                           "defined",
                                           "string",
                                           "|",
                                           "trim",
                                           "upper",
                                           "join(',')",
                                           "tojson",
                                           "length",
                                           "list",
                                           "map('upper')",
                                           "sort",
                                           "namespace(a=1)",
                                           "range(3)",
                                           ",",
                                           ":",
                                           "=",
                                           "\n",
                                           "  ",
                                           "é",
                                           "break",
                                           "continue",
                                           ".split('a')",
                                           ".replace('a', 'b')",
                                           "if x ",
                                           "*9",
                                           "text"};
  const Variables context =
      ToVariables(ReadJson("golden/cases/template_cases.json").at("context"));
  std::mt19937 rng(20240607);
  int rendered_count = 0;
  for (int round = 0; round < 30'000; ++round) {
    std::string source = round % 2 == 0 ? "{{ " : "";
    for (size_t n = 1 + rng() % 12; n > 0; --n) source += pieces[rng() % pieces.size()];
    if (round % 2 == 0) source += " }}";
    const StatusOr<MarkedText> rendered =
        RenderSource(source, context, {.max_steps = 10'000, .max_bytes = 1 << 16});
    if (!rendered.ok()) continue;
    ++rendered_count;
    ASSERT_LE(rendered->text.size(), size_t{1} << 16) << source;
    size_t end = 0;
    for (const ByteRange& range : rendered->trusted) {
      ASSERT_LT(range.begin, range.end) << source;
      ASSERT_TRUE(end == 0 || range.begin > end) << source;
      end = range.end;
    }
    ASSERT_LE(end, rendered->text.size()) << source;
  }
  EXPECT_GT(rendered_count, 1000);
}

}  // namespace
}  // namespace renga::jinja
