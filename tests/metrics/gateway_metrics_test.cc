#include "metrics/gateway_metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace renga {
namespace {

using testing::HasSubstr;

TEST(GatewayMetricsTest, CountsByRouteAndCode) {
  GatewayMetrics metrics;
  metrics.CountRequest("/v1/models", 200, std::chrono::milliseconds(2));
  metrics.CountRequest("/v1/models", 200, std::chrono::milliseconds(3));
  metrics.CountRequest("/v1/models", 401, std::chrono::milliseconds(1));
  const std::string text = metrics.Serialize();
  EXPECT_THAT(
      text,
      HasSubstr("renga_gateway_requests_total{code=\"200\",route=\"/v1/models\"} 2\n"));
  EXPECT_THAT(
      text,
      HasSubstr("renga_gateway_requests_total{code=\"401\",route=\"/v1/models\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("renga_gateway_request_duration_seconds_count{route=\"/v1/"
                              "models\"} 3\n"));
  EXPECT_THAT(text, HasSubstr("le=\"0.0025\"} 2\n"));
}

TEST(GatewayMetricsTest, WhatIsOpenGoesUpAndDown) {
  GatewayMetrics metrics;
  metrics.AddConnections(1);
  metrics.AddConnections(1);
  metrics.AddConnections(-1);
  metrics.AddStreams(1);
  metrics.CountBytes(100, 7);
  metrics.CountBytes(20, 1);
  const std::string text = metrics.Serialize();
  for (const char* line : {"renga_gateway_connections 1\n", "renga_gateway_streams 1\n",
                           "renga_gateway_sent_bytes_total 120\n",
                           "renga_gateway_received_bytes_total 8\n"}) {
    EXPECT_THAT(text, HasSubstr(line));
  }
}

}  // namespace
}  // namespace renga
