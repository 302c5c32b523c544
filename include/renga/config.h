// Config: every setting of the server, in one struct, with default, unit and what it
// does.
//
// YAML keys, flags and environment variables carry the same names: `scheduler.window_ms`
// is `scheduler: {window_ms: 50}` in YAML, `--scheduler.window_ms 50` as a flag and
// RENGA_SCHEDULER_WINDOW_MS in the environment. Precedence: flag, environment, file,
// default. Read and checked once in app/, then passed by value; nothing below app/ reads
// the environment. The table that names every field is src/app/config_schema.cc.

#pragma once

#include <cstdint>
#include <string>

namespace renga {

struct ModelSettings {
  std::string path;     // The GGUF file to serve. Required.
  std::string name;     // What clients call it; empty: the file's own general.name.
  int32_t context = 0;  // Tokens of prompt and answer; 0: the model's own length.
};

struct DeviceSettings {
  std::string name = "auto";  // auto | cpu | cuda | cuda:N; auto: a GPU if there is one.
  std::string isa =
      "auto";  // auto | portable | avx2 | avx512 | amx; refused if the CPU lacks it.
  // fast | high: bits of the activations that quantised weights are multiplied with.
  std::string precision = "fast";
  int32_t threads = 0;  // Compute workers, the engine thread included; 0: all cores.
  bool row_invariant = true;  // CUDA: a row's bits do not depend on the batch.
};

struct KvSettings {
  int64_t pool_bytes = int64_t{1} << 30;  // Reserved once, touched when used.
  std::string dtype = "f16";              // f16 | f32 | bf16 | int8.
  bool prefix_cache = true;               // Reuse keys and values of equal beginnings.
};

struct SchedulerSettings {
  std::string policy = "window";  // window | continuous | serial.
  int32_t window_ms = 50;         // How long company may join while the engine is busy.
  int32_t queue_threshold = 8;    // More waiting than this leave at once.
  bool leave_when_idle = true;    // A lone request never waits.
  int32_t max_sequences = 64;     // Running at the same time.
  int32_t max_batch = 32;         // Requests that leave together.
  int32_t max_queue_requests = 256;
  int32_t max_queue_tokens = 65536;
  int32_t max_decode_stall_ms = 50;  // A step with decoding sequences aims to be shorter.
  // Prompt rows in one step while others decode; 0: as many as max_decode_stall_ms allows
  // by the measured cost of a step.
  int32_t prefill_slice_tokens = 0;
  int32_t max_step_tokens = 512;  // Rows of one step.
  int32_t aging_ms = 1000;        // Waiting so long lifts a request by one priority.
  int32_t tenant_quantum_tokens = 256;  // Of a tenant's turn in the fair share.
  // A request whose predicted first token is further away is refused; 0: no limit but its
  // own deadline.
  int32_t first_token_limit_ms = 0;
};

struct GrpcSettings {
  std::string address = "127.0.0.1:50051";
  int32_t max_message_bytes = 8 << 20;
  int32_t write_timeout_ms = 10000;  // A reader slower than this is cut.
  int32_t max_backlog_chunks = 64;   // Unwritten chunks of one stream before it pauses.
};

struct GatewaySettings {
  std::string address = "127.0.0.1:8080";  // The OpenAI-compatible HTTP API; empty: none.
  bool lenient = false;                    // Unknown fields are ignored, not refused.
  std::string cors_origins;                // Comma-separated, or "*"; empty: no CORS.
  int32_t max_body_bytes = 8 << 20;
  int32_t max_connections = 1024;
  int32_t idle_timeout_ms = 75000;  // A connection without a request is closed.
  int32_t read_timeout_ms = 15000;  // Headers and body must have come.
  int32_t keep_alive_ms = 10000;    // A silent event stream gets a comment so often.
  int32_t target_ping_ms = 10000;   // A silent server apart is pinged, and then given up.
  std::string access_log = "debug";  // off | debug | info: level of a line per request.
};

struct AdminSettings {
  std::string address = "127.0.0.1:9464";       // /metrics /livez /readyz /debug/requests
  std::string grpc_address = "127.0.0.1:9465";  // renga.v1.Admin
};

struct AuthSettings {
  std::string keys_file;  // Lines "tenant key"; empty: everybody may call.
};

struct MemorySettings {
  int32_t check_interval_ms = 10000;  // Between two looks of the memory check; 0: never.
};

struct HealthSettings {
  int32_t stall_ms = 2000;  // No step for this long though work waits: not ready.
};

struct DrainSettings {
  int32_t timeout_ms = 30000;  // After SIGTERM running streams get this long.
};

struct DebugSettings {
  int32_t recorded_requests = 256;  // Timelines that are kept; 0: none.
  int32_t slow_ms = 1000;           // Slower ones are kept longer.
};

struct MetricsSettings {
  bool otel_aliases = false;  // Latencies once more, under OpenTelemetry's names.
};

struct LogSettings {
  std::string level = "info";   // trace | debug | info | warn | error.
  std::string format = "text";  // text | json.
};

struct Config {
  ModelSettings model;
  DeviceSettings device;
  KvSettings kv;
  SchedulerSettings scheduler;
  GrpcSettings grpc;
  GatewaySettings gateway;
  AdminSettings admin;
  AuthSettings auth;
  MemorySettings memory;
  HealthSettings health;
  DrainSettings drain;
  DebugSettings debug;
  MetricsSettings metrics;
  LogSettings log;
};

}  // namespace renga
