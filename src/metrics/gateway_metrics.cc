#include "metrics/gateway_metrics.h"

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

namespace renga {
namespace {

const prometheus::Histogram::BucketBoundaries& Buckets() {
  static const prometheus::Histogram::BucketBoundaries buckets = {
      0.0005, 0.001, 0.0025, 0.005, 0.010, 0.025, 0.050, 0.100,
      0.250,  0.500, 1.0,    2.5,   5.0,   10.0,  30.0,  120.0};
  return buckets;
}

}  // namespace

struct GatewayMetrics::Impl {
  prometheus::Registry registry;
  prometheus::Family<prometheus::Counter>& requests =
      prometheus::BuildCounter()
          .Name("renga_gateway_requests_total")
          .Help("HTTP requests that ended, by route and status; 0: the client had gone")
          .Register(registry);
  prometheus::Family<prometheus::Histogram>& durations =
      prometheus::BuildHistogram()
          .Name("renga_gateway_request_duration_seconds")
          .Help("Arrival of an HTTP request to the last byte of its answer")
          .Register(registry);
  prometheus::Gauge& connections = prometheus::BuildGauge()
                                       .Name("renga_gateway_connections")
                                       .Help("Open connections of HTTP clients")
                                       .Register(registry)
                                       .Add({});
  prometheus::Gauge& streams = prometheus::BuildGauge()
                                   .Name("renga_gateway_streams")
                                   .Help("Event streams under way")
                                   .Register(registry)
                                   .Add({});
  prometheus::Counter& sent = prometheus::BuildCounter()
                                  .Name("renga_gateway_sent_bytes_total")
                                  .Help("Bytes of answers, their heads included")
                                  .Register(registry)
                                  .Add({});
  prometheus::Counter& received = prometheus::BuildCounter()
                                      .Name("renga_gateway_received_bytes_total")
                                      .Help("Bytes of the bodies of requests")
                                      .Register(registry)
                                      .Add({});
};

GatewayMetrics::GatewayMetrics() : impl_(std::make_unique<Impl>()) {}

GatewayMetrics::~GatewayMetrics() = default;

std::string GatewayMetrics::Serialize() const {
  return prometheus::TextSerializer().Serialize(impl_->registry.Collect());
}

void GatewayMetrics::CountRequest(std::string_view route, int code, Duration elapsed) {
  const std::string name(route);
  impl_->requests.Add({{"route", name}, {"code", std::to_string(code)}}).Increment();
  impl_->durations.Add({{"route", name}}, Buckets())
      .Observe(std::chrono::duration<double>(elapsed).count());
}

void GatewayMetrics::AddConnections(int delta) { impl_->connections.Increment(delta); }

void GatewayMetrics::AddStreams(int delta) { impl_->streams.Increment(delta); }

void GatewayMetrics::CountBytes(int64_t sent, int64_t received) {
  impl_->sent.Increment(static_cast<double>(sent));
  impl_->received.Increment(static_cast<double>(received));
}

}  // namespace renga
