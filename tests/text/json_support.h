// Reads the golden files for the text tests: JSON to template values, and a vocabulary
// from a tokenizer.json.
//
// Thread safety: plain functions.

#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <boost/json.hpp>
#include <fstream>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "text/bpe_tokenizer.h"
#include "text/jinja/evaluator.h"
#include "text/jinja/marked.h"

namespace renga::test {

inline boost::json::value ReadJson(const std::string& path) {
  std::ifstream file(std::string(RENGA_TEST_DATA) + "/" + path, std::ios::binary);
  EXPECT_TRUE(file.good()) << path;
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  return boost::json::parse(text);
}

inline std::string Text(const boost::json::value& value) {
  return std::string(value.as_string());
}

// Strings are text from outside, as a client's would be.
inline jinja::Value ToValue(const boost::json::value& json) {
  using jinja::Value;
  switch (json.kind()) {
    case boost::json::kind::null:
      return Value::None();
    case boost::json::kind::bool_:
      return Value::Bool(json.as_bool());
    case boost::json::kind::int64:
      return Value::Int(json.as_int64());
    case boost::json::kind::uint64:
      return Value::Int(static_cast<int64_t>(json.as_uint64()));
    case boost::json::kind::double_:
      return Value::Float(json.as_double());
    case boost::json::kind::string:
      return Value::String(jinja::PlainText(Text(json)));
    case boost::json::kind::array: {
      std::vector<Value> items;
      for (const auto& item : json.as_array()) items.push_back(ToValue(item));
      return *Value::MakeList(std::move(items));
    }
    case boost::json::kind::object: {
      std::vector<std::pair<Value, Value>> entries;
      for (const auto& [key, value] : json.as_object()) {
        entries.emplace_back(Value::String(jinja::PlainText(std::string(key))),
                             ToValue(value));
      }
      return *Value::MakeDict(std::move(entries));
    }
  }
  return Value::None();
}

inline jinja::Variables ToVariables(const boost::json::value& json) {
  jinja::Variables variables;
  for (const auto& [key, value] : json.as_object()) {
    variables.emplace_back(std::string(key), ToValue(value));
  }
  return variables;
}

// The vocabulary of tests/golden/cases/<name>/tokenizer.json.
inline BpeVocabulary ReadTokenizerJson(const std::string& name, SplitKind split) {
  const boost::json::value json = ReadJson("golden/cases/" + name + "/tokenizer.json");
  const boost::json::object& model = json.at("model").as_object();
  BpeVocabulary vocabulary;
  vocabulary.split = split;
  vocabulary.nfc = !json.at("normalizer").is_null();
  for (const auto& [token, id] : model.at("vocab").as_object()) {
    const auto index = static_cast<size_t>(id.as_int64());
    vocabulary.tokens.resize(std::max(vocabulary.tokens.size(), index + 1));
    vocabulary.tokens[index] = std::string(token);
  }
  for (const auto& merge : model.at("merges").as_array()) {
    vocabulary.merges.push_back(Text(merge.at(0)) + " " + Text(merge.at(1)));
  }
  for (const auto& added : json.at("added_tokens").as_array()) {
    const auto id = static_cast<TokenId>(added.at("id").as_int64());
    const auto index = static_cast<size_t>(id);
    vocabulary.tokens.resize(std::max(vocabulary.tokens.size(), index + 1));
    vocabulary.tokens[index] = Text(added.at("content"));
    vocabulary.added.push_back({.id = id,
                                .content = Text(added.at("content")),
                                .control = added.at("special").as_bool(),
                                .lstrip = added.at("lstrip").as_bool(),
                                .rstrip = added.at("rstrip").as_bool(),
                                .single_word = added.at("single_word").as_bool(),
                                .normalized = added.at("normalized").as_bool()});
  }
  return vocabulary;
}

}  // namespace renga::test
