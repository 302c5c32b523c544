// The server under load, over gRPC, in one process with its clients.
//
//   load_bench MODEL.gguf [--scenario policies|overload|users] [--seconds 15] [--rounds
//   2]
//
// policies: one request at a time (`serial`) against `window`, 16 users without think
// time,
//   taking turns: requests per second, P99 of the response, busy share, and their ratios.
// overload: the capacity (64 users without think time), then open loop at 0.5, 1, 2 and 3
//   times that, with first_token_limit_ms 200: goodput, P99 of what was accepted, how
//   quickly the rest was refused.
// users: 16, 50 and 100 users who think 0.5 to 1.5 s, first_token_limit_ms 500.
//
// The requests are chat messages of 50 to 100 characters, answered by 16 tokens. Client
// and server share the machine's cores, as in the project's other load tests.

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>

#include "app/server_app.h"
#include "base/log.h"
#include "bench/load/load_client.h"
#include "renga/v1/inference.grpc.pb.h"

#include <grpcpp/client_context.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>

namespace renga {
namespace {

constexpr int32_t kOverloadLimitMs = 200;

struct Arguments {
  std::string model;
  std::string scenario = "policies";
  double seconds = 15.0;
  int rounds = 2;
};

// A server of this process, ready when constructed.
class Server {
 public:
  explicit Server(const Config& config) : app_(config) {
    if (Status status = app_.Start(); !status.ok()) {
      std::fprintf(stderr, "%s\n", status.ToString().c_str());
      std::exit(1);
    }
    thread_ = std::thread([this] { static_cast<void>(app_.Run()); });
  }
  ~Server() {
    app_.RequestStop();
    thread_.join();
  }

  LoadResult Load(LoadOptions options) {
    options.address = app_.grpc_address();
    return RunLoad(options);
  }
  // Of the last seconds; ask while the load is still there or has just ended.
  double BusyShare() {
    const auto stub = v1::Inference::NewStub(
        grpc::CreateChannel(app_.grpc_address(), grpc::InsecureChannelCredentials()));
    grpc::ClientContext context;
    v1::GetLoadResponse load;
    const grpc::Status status = stub->GetLoad(&context, {}, &load);
    return status.ok() ? load.busy_share() : -1.0;
  }

 private:
  ServerApp app_;
  std::thread thread_;
};

Config BaseConfig(const Arguments& arguments) {
  Config config;
  config.model.path = arguments.model;
  config.grpc.address = "127.0.0.1:0";
  config.admin.address = "127.0.0.1:0";
  config.admin.grpc_address = "127.0.0.1:0";
  config.gateway.address = "";
  return config;
}

void PrintHeader() {
  std::printf(
      "| run | req/s | ok | refused | P50 ms | P99 ms | first token P99 | max gap P99 | "
      "refused in P99 |\n| --- | --- | --- | --- | --- | --- | --- | --- | --- |\n");
}

void PrintRow(const std::string& name, const LoadResult& result) {
  std::printf("| %s | %.1f | %lld | %lld | %.0f | %.0f | %.0f | %.0f | %.1f |\n",
              name.c_str(), result.rate(), static_cast<long long>(result.ok),
              static_cast<long long>(result.refused), Quantile(result.response_ms, 0.5),
              Quantile(result.response_ms, 0.99), Quantile(result.first_token_ms, 0.99),
              Quantile(result.max_gap_ms, 0.99), Quantile(result.refusal_ms, 0.99));
  if (result.late + result.failed > 0) {
    std::printf("  (%lld past their deadline, %lld failed)\n",
                static_cast<long long>(result.late),
                static_cast<long long>(result.failed));
  }
  std::fflush(stdout);
}

void RunPolicies(const Arguments& arguments) {
  PrintHeader();
  double rate[2] = {};
  double p99[2] = {};
  double busy[2] = {};
  for (int round = 0; round < arguments.rounds; ++round) {
    for (const bool window : {false, true}) {
      Config config = BaseConfig(arguments);
      config.scheduler.policy = window ? "window" : "serial";
      Server server(config);
      double share = 0.0;
      std::thread watcher([&] {
        std::this_thread::sleep_for(
            std::chrono::duration<double>(0.8 * arguments.seconds));
        share = server.BusyShare();
      });
      const LoadResult result = server.Load({.seconds = arguments.seconds,
                                             .users = 16,
                                             .seed = 1 + static_cast<uint64_t>(round)});
      watcher.join();
      PrintRow(config.scheduler.policy, result);
      rate[window] += result.rate() / arguments.rounds;
      p99[window] += Quantile(result.response_ms, 0.99) / arguments.rounds;
      busy[window] += share / arguments.rounds;
    }
  }
  std::printf(
      "\nwindow / serial: requests per second %.2f (goal 2.44), P99 %.2f (goal 0.60); "
      "busy share %.2f and %.2f (goal 0.88)\n",
      rate[1] / rate[0], p99[1] / p99[0], busy[1], busy[0]);
}

void RunOverload(const Arguments& arguments) {
  Config config = BaseConfig(arguments);
  double capacity = 0.0;
  {
    Server server(config);
    const LoadResult result = server.Load({.seconds = arguments.seconds, .users = 64});
    capacity = result.rate();
  }
  config.scheduler.first_token_limit_ms = kOverloadLimitMs;
  Server server(config);
  std::printf("capacity (64 users, no think time): %.1f requests/s\n\n", capacity);
  PrintHeader();
  double best = 0.0;
  double goodput[4] = {};
  double p99[4] = {};
  double refused_in = 0.0;
  const double loads[4] = {0.5, 1.0, 2.0, 3.0};
  for (int i = 0; i < 4; ++i) {
    const LoadResult result = server.Load(
        {.seconds = arguments.seconds, .rate = loads[i] * capacity, .seed = 7});
    char name[32];
    std::snprintf(name, sizeof name, "%.1fx", loads[i]);
    PrintRow(name, result);
    goodput[i] = static_cast<double>(result.ok) / result.seconds;
    p99[i] = Quantile(result.response_ms, 0.99);
    best = std::max(best, goodput[i]);
    refused_in = Quantile(result.refusal_ms, 0.99);
  }
  std::printf(
      "\nat 3x: goodput %.2f of the best (goal 0.95), P99 %.2f of that at 1x (goal 1.5), "
      "refused within %.1f ms at P99 (goal 10)\n",
      goodput[3] / best, p99[3] / p99[1], refused_in);
}

void RunUsers(const Arguments& arguments) {
  Config config = BaseConfig(arguments);
  config.scheduler.first_token_limit_ms = 500;
  Server server(config);
  PrintHeader();
  for (const int users : {16, 50, 100}) {
    const LoadResult result = server.Load({.seconds = arguments.seconds,
                                           .users = users,
                                           .think_min = 0.5,
                                           .think_max = 1.5});
    PrintRow(std::to_string(users) + " users", result);
  }
}

}  // namespace
}  // namespace renga

int main(int argc, char** argv) {
  renga::Arguments arguments;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word.rfind("--", 0) != 0) {
      arguments.model = word;
    } else if (i + 1 < argc && word == "--scenario") {
      arguments.scenario = argv[++i];
    } else if (i + 1 < argc && word == "--seconds") {
      arguments.seconds = std::max(1.0, std::atof(argv[++i]));
    } else if (i + 1 < argc && word == "--rounds") {
      arguments.rounds = std::max(1, std::atoi(argv[++i]));
    } else {
      std::fprintf(stderr, "%s is unknown or needs a value\n", word.c_str());
      return 2;
    }
  }
  if (arguments.model.empty()) {
    std::fprintf(stderr,
                 "usage: load_bench MODEL.gguf [--scenario policies|overload|users] "
                 "[--seconds 15] [--rounds 2]\n");
    return 2;
  }
  static_cast<void>(renga::ConfigureLog("warn", "text"));
  if (arguments.scenario == "policies") {
    renga::RunPolicies(arguments);
  } else if (arguments.scenario == "overload") {
    renga::RunOverload(arguments);
  } else if (arguments.scenario == "users") {
    renga::RunUsers(arguments);
  } else {
    std::fprintf(stderr, "no scenario %s\n", arguments.scenario.c_str());
    return 2;
  }
  return 0;
}
