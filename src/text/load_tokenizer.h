// Builds the tokenizer and the chat template that a GGUF file describes.
//
// Thread safety: pure functions; what they return is immutable.

#pragma once

#include <memory>

#include "formats/gguf_file.h"
#include "renga/status.h"
#include "renga/tokenizer.h"
#include "text/chat_template.h"

namespace renga {

// Refuses, naming the key: a missing or ill-typed key, a tokenizer model or split that is
// not known, ids out of range, merges of tokens that do not exist.
StatusOr<std::unique_ptr<Tokenizer>> LoadTokenizer(const GgufFile& file);

// nullptr: the file has none (the model serves plain prompts only). A template that does
// not parse is an error with line and column.
StatusOr<std::unique_ptr<ChatTemplate>> LoadChatTemplate(const GgufFile& file);

}  // namespace renga
