// A GrpcServer on a free port over a FakeGenerationService, and a client stub.

#pragma once

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <gtest/gtest.h>

#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "metrics/server_metrics.h"
#include "renga/v1/inference.grpc.pb.h"
#include "tests/fakes/fake_generation_service.h"
#include "transport/grpc_server.h"

namespace renga {

struct StreamResult {
  v1::Started started;
  int64_t chunks = 0;
  std::string text;
  std::vector<int32_t> token_ids;
  std::map<int32_t, v1::Choice> choices;  // What the chunks say of each.
  std::vector<v1::ChoiceFinished> ends;
  v1::Finished finished;
  std::vector<std::string> order;  // "started", "chunk", "choice_finished", "finished"
  grpc::Status status;
};

class ServerFixture : public testing::Test {
 protected:
  void SetUp() override { Start({}); }
  void TearDown() override { server_.reset(); }

  void Start(GrpcSettings settings, std::shared_ptr<const ApiKeys> keys = nullptr) {
    server_.reset();
    settings.address = "127.0.0.1:0";
    auto server = GrpcServer::Listen(settings, std::move(keys));
    ASSERT_TRUE(server.ok()) << server.status().ToString();
    server_ = *std::move(server);
    server_->Serve(service_, metrics_);
    stub_ = NewStub({});
  }

  // A connection of its own.
  std::shared_ptr<grpc::Channel> NewChannel(grpc::ChannelArguments arguments) {
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    return grpc::CreateCustomChannel(server_->address(),
                                     grpc::InsecureChannelCredentials(), arguments);
  }
  std::unique_ptr<v1::Inference::Stub> NewStub(const grpc::ChannelArguments& arguments) {
    return v1::Inference::NewStub(NewChannel(arguments));
  }

  static v1::GenerateRequest TextRequest(const std::string& text) {
    v1::GenerateRequest request;
    request.set_text(text);
    return request;
  }

  StreamResult Stream(const v1::GenerateRequest& request) {
    grpc::ClientContext context;
    return ReadAll(*stub_->Generate(&context, request));
  }

  static StreamResult ReadAll(grpc::ClientReader<v1::GenerateResponse>& reader) {
    StreamResult result;
    v1::GenerateResponse message;
    while (reader.Read(&message)) {
      if (message.has_started()) {
        result.order.push_back("started");
        result.started = message.started();
      } else if (message.has_chunk()) {
        ++result.chunks;
        result.order.push_back("chunk");
        result.text += message.chunk().text();
        result.token_ids.insert(result.token_ids.end(),
                                message.chunk().token_ids().begin(),
                                message.chunk().token_ids().end());
        v1::Choice& choice = result.choices[message.chunk().choice()];
        choice.set_choice(message.chunk().choice());
        choice.mutable_text()->append(message.chunk().text());
        choice.mutable_token_ids()->MergeFrom(message.chunk().token_ids());
        choice.mutable_logprobs()->MergeFrom(message.chunk().logprobs());
      } else if (message.has_choice_finished()) {
        result.order.push_back("choice_finished");
        result.ends.push_back(message.choice_finished());
      } else {
        result.order.push_back("finished");
        result.finished = message.finished();
      }
    }
    result.status = reader.Finish();
    return result;
  }

  grpc::Status Unary(const v1::GenerateRequest& request,
                     v1::GenerateUnaryResponse* response) {
    grpc::ClientContext context;
    return stub_->GenerateUnary(&context, request, response);
  }

  FakeGenerationService service_;
  ServerMetrics metrics_{"fake", "cpu/fake"};
  std::unique_ptr<GrpcServer> server_;
  std::unique_ptr<v1::Inference::Stub> stub_;
};

}  // namespace renga
