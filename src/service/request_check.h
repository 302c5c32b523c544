// Checks of what a client sent, before anything is computed: every field, by its name.
//
// The limits here are part of the API; those that a client may meet are in the proto's
// comments.
//
// Thread safety: free functions without state.

#pragma once

#include <cstdint>
#include <string_view>

#include "renga/request.h"
#include "renga/status.h"

namespace renga {

inline constexpr size_t kMaxStopStrings = 64;
inline constexpr size_t kMaxStopBytes = 256;  // Of one stop string.
inline constexpr size_t kMaxStopTokens = 64;
inline constexpr size_t kMaxMessages = 4096;
inline constexpr size_t kMaxLogitBiases = 1024;
inline constexpr float kMaxLogitBias = 100.0f;
inline constexpr int32_t kMaxChoices = 16;
inline constexpr size_t kMaxTenantBytes = 128;
inline constexpr size_t kMaxCacheSaltBytes = 256;

// NOT_FOUND unless `name` is empty, "default" or `loaded`.
Status CheckModelName(std::string_view name, std::string_view loaded);

// Everything but the prompt.
Status CheckParameters(const GenerateRequest& request, int64_t vocab_size);

// The prompt's own form: not empty, ids inside the vocabulary, roles known.
Status CheckPrompt(const PromptInput& prompt, int64_t vocab_size);

Status CheckTokenIds(std::string_view field, const std::vector<TokenId>& ids,
                     int64_t vocab_size);

}  // namespace renga
