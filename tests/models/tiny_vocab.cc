#include "tests/models/tiny_vocab.h"

#include <iterator>

namespace renga::test {
namespace {

struct Merge {
  const char* left;
  const char* right;
};

// In order of rank. \u0120 is the space, as the alphabet writes it.
constexpr Merge kMerges[] = {
    {"\u0120", "t"},  {"\u0120", "a"},  {"h", "e"},        {"i", "n"},
    {"r", "e"},       {"o", "n"},       {"\u0120t", "he"}, {"e", "r"},
    {"\u0120", "s"},  {"a", "t"},       {"\u0120", "w"},   {"\u0120", "o"},
    {"e", "n"},       {"\u0120", "c"},  {"i", "t"},        {"i", "s"},
    {"a", "n"},       {"o", "r"},       {"e", "s"},        {"\u0120", "b"},
    {"e", "d"},       {"\u0120", "f"},  {"in", "g"},       {"\u0120", "p"},
    {"o", "u"},       {"\u0120a", "n"}, {"a", "l"},        {"a", "r"},
    {"\u0120t", "o"}, {"\u0120", "m"},  {"\u0120o", "f"},  {"\u0120", "in"},
    {"\u0120", "d"},  {"\u0120", "h"},  {"\u0120an", "d"}, {"i", "c"},
    {"a", "s"},       {"l", "e"},       {"\u0120t", "h"},  {"i", "on"},
    {"o", "m"},
};

// UTF-8 of a code point below 0x800.
std::string Utf8(int32_t code) {
  if (code < 0x80) return std::string(1, static_cast<char>(code));
  return {static_cast<char>(0xc0 | (code >> 6)), static_cast<char>(0x80 | (code & 0x3f))};
}

// GPT-2's alphabet: printable bytes stand for themselves, the others for 256, 257, ...
std::vector<std::string> ByteAlphabet() {
  std::vector<std::string> alphabet;
  int32_t next = 256;
  for (int32_t byte = 0; byte < 256; ++byte) {
    const bool printable = (byte >= '!' && byte <= '~') ||
                           (byte >= 0xa1 && byte <= 0xac) ||
                           (byte >= 0xae && byte <= 0xff);
    alphabet.push_back(Utf8(printable ? byte : next++));
  }
  return alphabet;
}

}  // namespace

const char kTinyChatTemplate[] =
    "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}"
    "{{ '<|im_start|>system\nYou are a tiny test model<|im_end|>\n' }}{% endif %}"
    "{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + "
    "'\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}"
    "{% endif %}";

int32_t TinyVocabSize() { return 3 + 256 + static_cast<int32_t>(std::size(kMerges)); }

TinyVocab MakeTinyVocab(int32_t size) {
  TinyVocab vocab;
  vocab.tokens = {"<|endoftext|>", "<|im_start|>", "<|im_end|>"};
  vocab.types.assign(3, 3);
  for (std::string& piece : ByteAlphabet()) vocab.tokens.push_back(std::move(piece));
  for (const Merge& merge : kMerges) {
    vocab.tokens.push_back(std::string(merge.left) + merge.right);
    vocab.merges.push_back(std::string(merge.left) + " " + merge.right);
  }
  vocab.types.resize(vocab.tokens.size(), 1);
  for (int32_t i = TinyVocabSize(); i < size; ++i) {
    vocab.tokens.push_back("<unused" + std::to_string(i) + ">");
    vocab.types.push_back(5);
  }
  return vocab;
}

}  // namespace renga::test
