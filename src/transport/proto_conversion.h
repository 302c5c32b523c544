// Proto messages <-> the plain data of include/renga. Only what a message can't express
// is checked here (that there is a prompt at all); values are the service's affair.

#pragma once

#include "renga/generation_service.h"
#include "renga/request.h"
#include "renga/token_sink.h"
#include "renga/v1/inference.pb.h"

namespace renga {

// All but `id`, `arrival` and `deadline`. Takes the texts out of `message`.
StatusOr<GenerateRequest> ToGenerateRequest(v1::GenerateRequest& message);
StatusOr<PromptInput> ToPrompt(v1::TokenizeRequest& message);

// All but `request_id` and `model`.
void ToProto(const StartInfo& info, v1::Started& message);
void ToProto(const TokenChunk& chunk, v1::Chunk& message);
void ToProto(const Completion& completion, v1::Finished& message);
void ToProto(const ModelInfo& info, v1::GetModelResponse& message);

}  // namespace renga
