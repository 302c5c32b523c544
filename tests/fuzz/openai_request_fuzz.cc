// Fuzzes the conversion of OpenAI's JSON into native requests. Whatever comes, nothing
// crashes; what is refused has a reason that can be told as valid JSON; what is accepted
// is a message that protobuf can send: its strings are UTF-8, its numbers finite.
//
// The first byte chooses the route and whether unknown fields are ignored.

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "gateway/http_error.h"
#include "gateway/json_writer.h"
#include "gateway/openai_request.h"

namespace {

void Check(bool holds) {
  if (!holds) std::abort();
}

void CheckRefusal(const renga::Status& status) {
  Check(renga::HttpStatusOf(status.code()) == 400);
  Check(renga::IsUtf8(renga::ErrorBody(status)));
}

void CheckRequest(const renga::v1::GenerateRequest& request) {
  // Serialising refuses a string that is not UTF-8, reading it back too.
  renga::v1::GenerateRequest again;
  Check(again.ParseFromString(request.SerializeAsString()));
  Check(std::isfinite(request.sampling().temperature()));
  for (const renga::v1::LogitBias& bias : request.sampling().logit_bias()) {
    Check(std::isfinite(bias.bias()) && bias.token_id() >= 0);
  }
  for (const int32_t id : request.token_ids().ids()) Check(id >= 0);
}

void CheckCompletions(const renga::StatusOr<renga::CompletionRequest>& parsed) {
  if (!parsed.ok()) return CheckRefusal(parsed.status());
  Check(!parsed->prompts.empty() && parsed->prompts.size() <= renga::kMaxPrompts);
  Check(parsed->shape.n >= 1 && parsed->shape.n <= renga::kMaxChoices);
  for (const auto& request : parsed->prompts) CheckRequest(request);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view body(reinterpret_cast<const char*>(data) + 1, size - 1);
  const bool lenient = (data[0] & 4) != 0;
  switch (data[0] & 3) {
    case 0:
      CheckCompletions(renga::ParseChatRequest(body, lenient));
      break;
    case 1:
      CheckCompletions(renga::ParseCompletionRequest(body, lenient));
      break;
    case 2: {
      const auto parsed = renga::ParseTokenizeRequest(body, lenient);
      if (!parsed.ok()) CheckRefusal(parsed.status());
      break;
    }
    default: {
      const auto parsed = renga::ParseDetokenizeRequest(body, lenient);
      if (!parsed.ok()) CheckRefusal(parsed.status());
    }
  }
  return 0;
}
