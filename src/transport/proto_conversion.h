// Proto messages <-> the plain data of include/renga. Only what that data can't express
// is checked here (that there is a prompt at all, that an enum's number has a meaning);
// values are the service's affair.

#pragma once

#include <span>

#include "renga/generation_service.h"
#include "renga/request.h"
#include "renga/token_sink.h"
#include "renga/v1/inference.pb.h"

namespace renga {

// All but `id` and `tenant`; `deadline` from deadline_ms alone. Takes the texts out of
// `message`.
StatusOr<GenerateRequest> ToGenerateRequest(v1::GenerateRequest& message,
                                            TimePoint arrival);
StatusOr<PromptInput> ToPrompt(v1::TokenizeRequest& message);

// `service` knows the bytes of the tokens.
void AddToProto(std::span<const TokenLogprob> logprobs, GenerationService& service,
                google::protobuf::RepeatedPtrField<v1::TokenLogprob>& messages);

// All but `request_id` and `model`.
void ToProto(const StartInfo& info, GenerationService& service, v1::Started& message);
void ToProto(const TokenChunk& chunk, GenerationService& service, v1::Chunk& message);
void ToProto(const ChoiceEnd& end, v1::ChoiceFinished& message);
// The entry of one choice in `message`, which gets entries up to it.
v1::ChoiceFinished& ChoiceOf(v1::Finished& message, int32_t choice);
// All but `choices`.
void ToProto(const Completion& completion, v1::Finished& message);
void ToProto(const ModelInfo& info, v1::GetModelResponse& message);
void ToProto(const LoadInfo& info, v1::GetLoadResponse& message);

}  // namespace renga
