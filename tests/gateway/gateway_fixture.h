// A gateway in front of a fake server of the native API, and a client's view of it.
//
// Thread safety: none.

#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "gateway/http_gateway.h"
#include "tests/gateway/fake_inference.h"
#include "tests/gateway/http_client.h"

namespace renga {

class GatewayTest : public testing::Test {
 protected:
  void SetUp() override { settings_.address = "127.0.0.1:0"; }

  // The first call of StartGateway, or of what asks it, starts the gateway.
  HttpGateway& StartGateway() {
    if (gateway_ != nullptr) return *gateway_;
    auto started = HttpGateway::Start(
        settings_, {server_.InProcess(TargetChannelArguments())}, options_);
    if (!started.ok()) ADD_FAILURE() << started.status().ToString();
    gateway_ = *std::move(started);
    return *gateway_;
  }
  std::string address() { return StartGateway().address(); }

  HttpReply Post(const std::string& path, const std::string& body,
                 const std::string& headers = "") {
    HttpClient client(address());
    client.Post(path, body, headers);
    return client.ReadReply();
  }
  HttpReply Get(const std::string& path, const std::string& headers = "") {
    HttpClient client(address());
    client.Get(path, headers);
    return client.ReadReply();
  }
  HttpReply Chat(const std::string& more_fields = "", const std::string& headers = "") {
    return Post("/v1/chat/completions",
                R"({"messages":[{"role":"user","content":"hi"}])" + more_fields + "}",
                headers);
  }

  FakeInference fake_;
  FakeServer server_{fake_};
  GatewaySettings settings_;
  GatewayOptions options_;
  std::unique_ptr<HttpGateway> gateway_;
};

// error.message of a refusal.
inline std::string ErrorMessage(const HttpReply& reply) {
  const boost::json::value body = reply.Json();
  return std::string(body.at("error").at("message").as_string());
}

}  // namespace renga
