// The table, and reading and printing single values by it.

#include "app/config_schema.h"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <limits>
#include <optional>

#include "app/device_choice.h"
#include "base/status_macros.h"

namespace renga {
namespace {

constexpr int64_t kMaxInt32 = std::numeric_limits<int32_t>::max();
constexpr size_t kMaxTextBytes = 4096;
constexpr std::string_view kDeviceUnit = "auto|cpu|cuda:N";

#define RENGA_MEMBER(member) [](Config& config) -> ConfigValue { return &config.member; }

constexpr ConfigField kSchema[] = {
    {.name = "model.path",
     .value = RENGA_MEMBER(model.path),
     .unit = "file",
     .doc = "The GGUF file to serve. Required. It is mapped, checked and copied once at "
            "start; afterwards its pages are given back."},
    {.name = "model.name",
     .value = RENGA_MEMBER(model.name),
     .doc = "What clients call the model; \"default\" always works too. Empty: the name "
            "that the file gives itself."},
    {.name = "model.context",
     .value = RENGA_MEMBER(model.context),
     .min = 0,
     .max = 1 << 20,
     .unit = "tokens",
     .doc = "Prompt and answer together. 0: the model's own length; more than that is "
            "refused. Less lets no request take more of the KV pool than this."},
    {.name = "device.name",
     .value = RENGA_MEMBER(device.name),
     .unit = kDeviceUnit,
     .doc = "What computes: cpu; cuda:N, the N-th NVIDIA GPU (cuda: the first), which "
            "stops the start if it is not there; auto: the first GPU if this build and "
            "this machine have one, else the CPU."},
    {.name = "device.row_invariant",
     .value = RENGA_MEMBER(device.row_invariant),
     .doc = "On a GPU: every row of a matrix product is summed in one order, however "
            "many rows there are, so that an answer does not depend on company. false: "
            "cuBLASLt multiplies large batches, which is faster and gives them other "
            "last digits. The CPU always keeps one order."},
    {.name = "device.isa",
     .value = RENGA_MEMBER(device.isa),
     .choices = "auto|portable|avx2|avx512|amx",
     .doc =
         "Instruction set of the CPU's kernels. All give the same bits; auto takes the "
         "fastest one of this machine, one that it lacks stops the start."},
    {.name = "device.precision",
     .value = RENGA_MEMBER(device.precision),
     .choices = "fast|high",
     .doc =
         "On the CPU: bits of the activations that quantised weights are multiplied "
         "with. fast: 8, "
         "and 16 for the few blocks of 32 that stand out, which leaves a quarter of the "
         "divergence of 8 everywhere. high: 16 everywhere, the model as it is; slower. "
         "The two give different answers in the last digits."},
    {.name = "device.threads",
     .value = RENGA_MEMBER(device.threads),
     .min = 0,
     .max = 1024,
     .unit = "threads",
     .doc = "Compute workers, the engine thread among them. 0: one per core. More than "
            "there are cores makes every step slower."},
    {.name = "kv.pool_bytes",
     .value = RENGA_MEMBER(kv.pool_bytes),
     .min = 1 << 16,
     .max = int64_t{1} << 44,
     .unit = "bytes",
     .doc =
         "Keys and values of all running requests. Address space is reserved at start, "
         "memory is touched when it is first used. Too little means preemptions. With "
         "int8 it includes an f16 page of 64 tokens for each of scheduler.max_sequences. "
         "KiB, MiB and GiB may follow the number."},
    {.name = "kv.dtype",
     .value = RENGA_MEMBER(kv.dtype),
     .choices = "f16|f32|bf16|int8",
     .doc =
         "How keys and values are stored. f32 takes twice the memory and the bandwidth "
         "of f16, int8 a little more than half of it (the last tokens of a sequence, 64 "
         "at most, stay f16). Each gives other answers in the last digits. int8 needs "
         "heads of a multiple of 16 channels, and reuses prompts by whole pages of 64 "
         "tokens. f32 is the CPU's alone, bf16 a GPU's."},
    {.name = "kv.prefix_cache",
     .value = RENGA_MEMBER(kv.prefix_cache),
     .doc =
         "Keep the pages of requests that have ended until others need them, and reuse "
         "them for prompts that begin with the same tokens."},
    {.name = "scheduler.policy",
     .value = RENGA_MEMBER(scheduler.policy),
     .choices = "window|continuous|serial",
     .doc =
         "window: wait a moment for company while the engine is busy. continuous: join "
         "at the next step. serial: one request at a time, for comparisons."},
    {.name = "scheduler.window_ms",
     .value = RENGA_MEMBER(scheduler.window_ms),
     .min = 0,
     .max = 60'000,
     .unit = "ms",
     .doc = "How long company may join while the engine is busy. Adds up to this to the "
            "first token of a request that meets a busy engine."},
    {.name = "scheduler.queue_threshold",
     .value = RENGA_MEMBER(scheduler.queue_threshold),
     .min = 0,
     .max = 1 << 20,
     .unit = "requests",
     .doc = "More waiting than this leave at once."},
    {.name = "scheduler.leave_when_idle",
     .value = RENGA_MEMBER(scheduler.leave_when_idle),
     .doc = "A request that finds the engine idle never waits for the window."},
    {.name = "scheduler.max_sequences",
     .value = RENGA_MEMBER(scheduler.max_sequences),
     .min = 1,
     .max = 4096,
     .unit = "sequences",
     .doc = "Running at the same time. Each takes a row of every decode step, so more "
            "means more tokens per second and longer gaps between them."},
    {.name = "scheduler.max_batch",
     .value = RENGA_MEMBER(scheduler.max_batch),
     .min = 1,
     .max = 4096,
     .unit = "requests",
     .doc = "Requests that leave the queue together."},
    {.name = "scheduler.max_queue_requests",
     .value = RENGA_MEMBER(scheduler.max_queue_requests),
     .min = 1,
     .max = 1 << 20,
     .unit = "requests",
     .doc = "Waiting at most; one more is refused at once with RESOURCE_EXHAUSTED. A "
            "longer queue turns overload into latency."},
    {.name = "scheduler.max_queue_tokens",
     .value = RENGA_MEMBER(scheduler.max_queue_tokens),
     .min = 1,
     .max = kMaxInt32,
     .unit = "tokens",
     .doc = "Prompt tokens of all that wait; the same answer beyond. A longer prompt is "
            "let in when nothing else waits."},
    {.name = "scheduler.max_decode_stall_ms",
     .value = RENGA_MEMBER(scheduler.max_decode_stall_ms),
     .min = 1,
     .max = 60'000,
     .unit = "ms",
     .doc = "While others decode, a step takes as many prompt tokens as keep it below "
            "this, by the measured cost of steps. Larger: prompts are done sooner, "
            "running answers stall longer."},
    {.name = "scheduler.prefill_slice_tokens",
     .value = RENGA_MEMBER(scheduler.prefill_slice_tokens),
     .min = 0,
     .max = 65'536,
     .unit = "tokens",
     .doc = "A fixed number of prompt tokens for such a step instead. 0: sized by "
            "scheduler.max_decode_stall_ms."},
    {.name = "scheduler.aging_ms",
     .value = RENGA_MEMBER(scheduler.aging_ms),
     .min = 1,
     .max = 3'600'000,
     .unit = "ms",
     .doc = "A request that has waited this long counts as one priority higher; twice, "
            "as two."},
    {.name = "scheduler.tenant_quantum_tokens",
     .value = RENGA_MEMBER(scheduler.tenant_quantum_tokens),
     .min = 1,
     .max = 1 << 20,
     .unit = "tokens",
     .doc = "Tenants share the engine in turns of so many prompt tokens."},
    {.name = "scheduler.first_token_limit_ms",
     .value = RENGA_MEMBER(scheduler.first_token_limit_ms),
     .min = 0,
     .max = 3'600'000,
     .unit = "ms",
     .doc =
         "A request whose first token is predicted to be further away is refused at "
         "once, so that what is accepted stays fast. 0: only its own deadline counts."},
    {.name = "scheduler.max_step_tokens",
     .value = RENGA_MEMBER(scheduler.max_step_tokens),
     .min = 1,
     .max = 65'536,
     .unit = "tokens",
     .doc =
         "Rows of one step. Sizes the activations, which are allocated once at start."},
    {.name = "grpc.address",
     .value = RENGA_MEMBER(grpc.address),
     .unit = "host:port",
     .doc =
         "Where clients connect. Port 0: any free one, printed in the log. There is no "
         "encryption; keep it on a trusted network."},
    {.name = "grpc.max_message_bytes",
     .value = RENGA_MEMBER(grpc.max_message_bytes),
     .min = 1024,
     .max = 256 << 20,
     .unit = "bytes",
     .doc = "A larger request is refused. Every connection may hold one of this size."},
    {.name = "grpc.write_timeout_ms",
     .value = RENGA_MEMBER(grpc.write_timeout_ms),
     .min = 1,
     .max = 3'600'000,
     .unit = "ms",
     .doc = "A stream whose reader takes longer for one chunk is cut."},
    {.name = "grpc.max_backlog_chunks",
     .value = RENGA_MEMBER(grpc.max_backlog_chunks),
     .min = 1,
     .max = 65'536,
     .unit = "chunks",
     .doc = "Unwritten chunks of one stream before its sequence pauses. It bounds the "
            "memory that a slow reader costs."},
    {.name = "gateway.address",
     .value = RENGA_MEMBER(gateway.address),
     .unit = "host:port or empty",
     .doc =
         "The OpenAI-compatible HTTP API and the chat page. Port 0: any free one, "
         "printed in the log. Empty: none. There is no encryption; keep it on a trusted "
         "network."},
    {.name = "gateway.lenient",
     .value = RENGA_MEMBER(gateway.lenient),
     .doc = "Unknown fields of a request are ignored, not refused by name."},
    {.name = "gateway.cors_origins",
     .value = RENGA_MEMBER(gateway.cors_origins),
     .unit = "origins",
     .doc = "Pages of these origins (comma-separated, or *) may call the HTTP API from a "
            "browser. Empty: none but the chat page."},
    {.name = "gateway.max_body_bytes",
     .value = RENGA_MEMBER(gateway.max_body_bytes),
     .min = 1 << 10,
     .max = 1 << 28,
     .unit = "bytes",
     .doc = "A larger request body is refused with 413."},
    {.name = "gateway.max_connections",
     .value = RENGA_MEMBER(gateway.max_connections),
     .min = 1,
     .max = 65'536,
     .unit = "connections",
     .doc = "One more gets 503 and is closed."},
    {.name = "gateway.idle_timeout_ms",
     .value = RENGA_MEMBER(gateway.idle_timeout_ms),
     .min = 1,
     .max = 3'600'000,
     .unit = "ms",
     .doc = "A connection without a request is closed after this."},
    {.name = "gateway.read_timeout_ms",
     .value = RENGA_MEMBER(gateway.read_timeout_ms),
     .min = 1,
     .max = 3'600'000,
     .unit = "ms",
     .doc = "The headers and the body of a request must have come within this."},
    {.name = "gateway.keep_alive_ms",
     .value = RENGA_MEMBER(gateway.keep_alive_ms),
     .min = 1,
     .max = 3'600'000,
     .unit = "ms",
     .doc = "An event stream that is silent for so long gets a comment, so that proxies "
            "keep it open."},
    {.name = "gateway.target_ping_ms",
     .value = RENGA_MEMBER(gateway.target_ping_ms),
     .min = 1000,
     .max = 3'600'000,
     .unit = "ms",
     .doc = "renga gateway: a server that says nothing for so long is pinged; if it does "
            "not answer for as long, its requests end with an error."},
    {.name = "gateway.access_log",
     .value = RENGA_MEMBER(gateway.access_log),
     .choices = "off|debug|info",
     .doc = "Level of the one line that is logged for each HTTP request: method, path, "
            "status, time, bytes and id, never a body or a key."},
    {.name = "admin.address",
     .value = RENGA_MEMBER(admin.address),
     .unit = "host:port",
     .doc = "/metrics, /livez, /readyz and /debug/requests, apart from client traffic. "
            "Port 0: any free one, printed in the log."},
    {.name = "admin.grpc_address",
     .value = RENGA_MEMBER(admin.grpc_address),
     .unit = "host:port",
     .doc =
         "The gRPC service renga.v1.Admin, apart from client traffic. Port 0: any free "
         "one, printed in the log."},
    {.name = "auth.keys_file",
     .value = RENGA_MEMBER(auth.keys_file),
     .unit = "file",
     .doc =
         "Lines of `tenant key`; every RPC but health then wants `authorization: Bearer "
         "KEY`. The tenant \"admin\" may call renga.v1.Admin. Empty: no keys."},
    {.name = "memory.check_interval_ms",
     .value = RENGA_MEMBER(memory.check_interval_ms),
     .min = 0,
     .max = 3'600'000,
     .unit = "ms",
     .doc =
         "How often the memory check looks at live bytes, pages, resident memory and the "
         "GPU's figures. 0: never."},
    {.name = "health.stall_ms",
     .value = RENGA_MEMBER(health.stall_ms),
     .min = 1,
     .max = 3'600'000,
     .unit = "ms",
     .doc = "No step for this long though work waits: not ready. Must be longer than the "
            "longest step."},
    {.name = "drain.timeout_ms",
     .value = RENGA_MEMBER(drain.timeout_ms),
     .min = 0,
     .max = 3'600'000,
     .unit = "ms",
     .doc =
         "After SIGTERM running and queued requests get this long to finish, then their "
         "streams end with an error."},
    {.name = "debug.recorded_requests",
     .value = RENGA_MEMBER(debug.recorded_requests),
     .min = 0,
     .max = 65'536,
     .unit = "requests",
     .doc = "How many of the last requests /debug/requests of admin.address shows the "
            "timelines of, in Chrome's trace format; a quarter as many slow ones are "
            "kept beside. About 1 KiB each. 0: none."},
    {.name = "debug.slow_ms",
     .value = RENGA_MEMBER(debug.slow_ms),
     .min = 1,
     .max = 3'600'000,
     .unit = "ms",
     .doc = "A request is slow if its first token, or a gap between two of its tokens, "
            "takes this long."},
    {.name = "metrics.otel_aliases",
     .value = RENGA_MEMBER(metrics.otel_aliases),
     .doc = "Export the latencies once more under the names of OpenTelemetry's "
            "conventions for generative AI (gen_ai_server_...)."},
    {.name = "log.level",
     .value = RENGA_MEMBER(log.level),
     .choices = "trace|debug|info|warn|error",
     .doc = "The least important lines that are written. No level logs prompts or "
            "answers."},
    {.name = "log.format",
     .value = RENGA_MEMBER(log.format),
     .choices = "text|json",
     .doc = "json: one object per line. Both go to the standard error stream."},
};

#undef RENGA_MEMBER

Status Wrong(const ConfigField& field, std::string message) {
  return InvalidArgument(std::string(field.name), std::move(message));
}

bool IsChoice(std::string_view choices, std::string_view text) {
  while (!choices.empty()) {
    const size_t bar = choices.find('|');
    if (choices.substr(0, bar) == text) return true;
    if (bar == std::string_view::npos) break;
    choices.remove_prefix(bar + 1);
  }
  return false;
}

// A decimal number; nullopt for anything else, also for one that does not fit.
std::optional<int64_t> ParseNumber(std::string_view text) {
  int64_t value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || stop != end) return std::nullopt;
  return value;
}

// The same with an optional unit: "64MiB", "1 GiB".
std::optional<int64_t> ParseBytes(std::string_view text) {
  int shift = 0;
  for (const auto& [suffix, bits] :
       {std::pair<std::string_view, int>{"KiB", 10}, {"MiB", 20}, {"GiB", 30}}) {
    if (!text.ends_with(suffix)) continue;
    shift = bits;
    text.remove_suffix(suffix.size());
    if (text.ends_with(' ')) text.remove_suffix(1);
    break;
  }
  const std::optional<int64_t> number = ParseNumber(text);
  if (!number || *number < 0) return number;
  if (*number > std::numeric_limits<int64_t>::max() >> shift) return std::nullopt;
  return *number << shift;
}

// "host:port" with a port of 0 to 65535; an IPv6 host stands in brackets.
bool IsAddress(std::string_view text) {
  const size_t colon = text.rfind(':');
  if (colon == std::string_view::npos || colon == 0) return false;
  const std::string_view host = text.substr(0, colon);
  const bool bracketed = host.front() == '[' && host.back() == ']' && host.size() > 2;
  if (!bracketed && host.find_first_of(":[]/ ") != std::string_view::npos) return false;
  const std::string_view port_text = text.substr(colon + 1);
  if (port_text.empty() || port_text.front() == '-') return false;
  const std::optional<int64_t> port = ParseNumber(port_text);
  return port && *port <= 65'535;
}

Status SetText(const ConfigField& field, std::string_view text, std::string& out) {
  if (!field.choices.empty() && !IsChoice(field.choices, text)) {
    return Wrong(field, "must be one of " + std::string(field.choices));
  }
  const bool may_be_empty = field.unit == "host:port or empty";
  const bool address = field.unit == "host:port" || (may_be_empty && !text.empty());
  if (address && !IsAddress(text)) {
    return Wrong(field, "must be host:port, with a port of 0 to 65535");
  }
  if (field.unit == kDeviceUnit) {
    RENGA_RETURN_IF_ERROR(ParseDeviceName(text).status());
  }
  if (text.size() > kMaxTextBytes) return Wrong(field, "is longer than 4096 bytes");
  for (const char c : text) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
      return Wrong(field, "holds a control character");
    }
  }
  out = text;
  return OkStatus();
}

template <class Int>
Status SetNumber(const ConfigField& field, std::string_view text, Int& out) {
  const auto value = field.unit == "bytes" ? ParseBytes(text) : ParseNumber(text);
  if (!value || *value < field.min || *value > field.max) {
    const char* suffixes = field.unit == "bytes" ? "; KiB, MiB or GiB may follow" : "";
    return Wrong(field, "must be a whole number from " + std::to_string(field.min) +
                            " to " + std::to_string(field.max) + suffixes);
  }
  out = static_cast<Int>(*value);
  return OkStatus();
}

std::string Quoted(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out + '"';
}

}  // namespace

std::span<const ConfigField> ConfigSchema() { return kSchema; }

const ConfigField* FindConfigField(std::string_view name) {
  const auto found = std::find_if(std::begin(kSchema), std::end(kSchema),
                                  [&](const ConfigField& f) { return f.name == name; });
  return found == std::end(kSchema) ? nullptr : found;
}

std::string EnvironmentName(const ConfigField& field) {
  std::string name = "RENGA_";
  for (const char c : field.name) {
    name += c == '.' ? '_' : c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
  }
  return name;
}

Status SetConfigField(const ConfigField& field, std::string_view text, Config& config) {
  const ConfigValue value = field.value(config);
  if (std::string* const* place = std::get_if<std::string*>(&value)) {
    return SetText(field, text, **place);
  }
  if (int32_t* const* place = std::get_if<int32_t*>(&value)) {
    return SetNumber(field, text, **place);
  }
  if (int64_t* const* place = std::get_if<int64_t*>(&value)) {
    return SetNumber(field, text, **place);
  }
  if (text != "true" && text != "false") return Wrong(field, "must be true or false");
  *std::get<bool*>(value) = text == "true";
  return OkStatus();
}

std::string ConfigFieldYaml(const ConfigField& field, const Config& config) {
  Config copy = config;
  const ConfigValue value = field.value(copy);
  if (std::string* const* place = std::get_if<std::string*>(&value)) {
    return field.choices.empty() ? Quoted(**place) : **place;
  }
  if (int32_t* const* place = std::get_if<int32_t*>(&value)) {
    return std::to_string(**place);
  }
  if (int64_t* const* place = std::get_if<int64_t*>(&value)) {
    return std::to_string(**place);
  }
  return *std::get<bool*>(value) ? "true" : "false";
}

Status CheckConfig(const Config& config) {
  const SchedulerSettings& s = config.scheduler;
  if (s.max_step_tokens < s.max_sequences) {
    return InvalidArgument("scheduler.max_step_tokens",
                           "must be at least scheduler.max_sequences (" +
                               std::to_string(s.max_sequences) +
                               "): every running sequence takes a row");
  }
  return OkStatus();
}

}  // namespace renga
