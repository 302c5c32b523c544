#include "app/server_app.h"

#include <algorithm>
#include <atomic>
#include <limits>
#include <optional>
#include <thread>
#include <utility>

#include "app/model_name.h"
#include "app/warm_up.h"
#include "backend/cpu_backend.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/status_macros.h"
#include "base/system_clock.h"
#include "batching/engine_snapshot.h"
#include "batching/wait_queue.h"
#include "engine/engine.h"
#include "formats/gguf_file.h"
#include "gateway/admin_listener.h"
#include "metrics/server_metrics.h"
#include "model/model_config.h"
#include "model/transformer.h"
#include "service/generation_service.h"
#include "text/chat_template.h"
#include "text/load_tokenizer.h"
#include "transport/grpc_server.h"

namespace renga {
namespace {

// How often health is looked at.
constexpr auto kWatchInterval = std::chrono::milliseconds(100);
// What a lost engine's clients get to read their errors.
constexpr auto kLostEngineGrace = std::chrono::seconds(1);

int64_t MillisecondsSince(TimePoint begin) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(
             std::chrono::steady_clock::now() - begin)
      .count();
}

KvGeometry GeometryOf(const GraphShape& graph, const KvSettings& settings) {
  return {.layers = graph.layers,
          .kv_heads = graph.kv_heads,
          .head_dim = graph.head_dim,
          .dtype = settings.dtype == "f32" ? KvDtype::kF32 : KvDtype::kF16};
}

// Pages that fit `pool_bytes`; at least one must.
StatusOr<int64_t> PagesOf(const KvGeometry& geometry, int64_t pool_bytes) {
  const int64_t value_bytes = geometry.dtype == KvDtype::kF32 ? 4 : 2;
  const int64_t page_bytes = int64_t{2} * geometry.layers * geometry.kv_heads *
                             geometry.head_dim * kPageTokens * value_bytes;
  const int64_t pages =
      std::min<int64_t>(pool_bytes / page_bytes, std::numeric_limits<PageId>::max());
  if (pages >= 1) return pages;
  return InvalidArgument("kv.pool_bytes",
                         "is " + std::to_string(pool_bytes) +
                             "; one page of 64 tokens of this model takes " +
                             std::to_string(page_bytes));
}

}  // namespace

StatusOr<std::unique_ptr<Backend>> MakeDefaultBackend(const DeviceSettings& settings) {
  return MakeCpuBackend({.isa = settings.isa, .threads = settings.threads});
}

struct ServerApp::Impl {
  Impl(const Config& c, BackendFactory f) : config(c), factory(std::move(f)) {}
  ~Impl() { StopAll(); }

  Status Listen();
  Status OpenModel();
  Status LoadModel();
  Status StartEngine();
  ModelInfo DescribeModel() const;
  bool StopRequested() RENGA_EXCLUDES(mutex);
  bool Ready() const;
  void ShowHealth();
  // Waits for the next look at health; false once it is time to end.
  bool Watch() RENGA_EXCLUDES(mutex);
  void Drain();
  void StopAll();

  const Config config;
  const BackendFactory factory;
  const SystemClock clock;
  const TimePoint begin = std::chrono::steady_clock::now();

  std::unique_ptr<GgufFile> file;
  std::unique_ptr<Tokenizer> tokenizer;
  std::unique_ptr<ChatTemplate> chat_template;
  std::string no_template_reason;
  std::unique_ptr<Backend> backend;
  std::unique_ptr<ServerMetrics> metrics;
  std::unique_ptr<Transformer> transformer;
  std::string model_name;
  int64_t context = 0;
  int64_t pages = 0;
  std::unique_ptr<WaitQueue> queue;
  SnapshotBoard board;
  std::unique_ptr<Engine> engine;
  std::unique_ptr<GenerationServiceImpl> service;
  std::unique_ptr<GrpcServer> grpc;
  std::unique_ptr<AdminListener> admin;
  std::thread engine_thread;

  // For the admin listener's thread, which is there before these are.
  std::atomic<const ServerMetrics*> shown_metrics{nullptr};
  std::atomic<GenerationServiceImpl*> open_service{nullptr};

  Mutex mutex;
  CondVar changed;
  bool stop RENGA_GUARDED_BY(mutex) = false;
  bool engine_ended RENGA_GUARDED_BY(mutex) = false;
};

// ---- Start ---------------------------------------------------------------------------

Status ServerApp::Impl::Listen() {
  RENGA_ASSIGN_OR_RETURN(grpc, GrpcServer::Listen(config.grpc));
  const auto exposition = [this] {
    const ServerMetrics* shown = shown_metrics;
    return shown == nullptr ? std::string() : shown->Serialize();
  };
  RENGA_ASSIGN_OR_RETURN(
      admin,
      AdminListener::Start(config.admin.address,
                           {.metrics = exposition, .ready = [this] { return Ready(); }}));
  LogInfo("listening", {{"grpc", std::string_view(grpc->address())},
                        {"admin", std::string_view(admin->address())}});
  return OkStatus();
}

Status ServerApp::Impl::OpenModel() {
  StatusOr<std::unique_ptr<GgufFile>> opened = GgufFile::Open(config.model.path);
  if (!opened.ok()) {
    // For the operator alone, so with the whole path and the setting's name.
    const Status& why = opened.status();
    return Status(why.code(), config.model.path + ": " + why.message())
        .WithField("model.path");
  }
  file = *std::move(opened);
  RENGA_ASSIGN_OR_RETURN(tokenizer, LoadTokenizer(*file));
  no_template_reason = "the model file has none";
  StatusOr<std::unique_ptr<ChatTemplate>> parsed = LoadChatTemplate(*file);
  if (parsed.ok()) {
    chat_template = *std::move(parsed);
  } else {
    // The model can still complete text; the reason is the operator's to read.
    no_template_reason = "the one of the model file does not parse";
    LogWarn("chat_template_refused", {{"reason", parsed.status().ToString()}});
  }
  return OkStatus();
}

Status ServerApp::Impl::LoadModel() {
  RENGA_ASSIGN_OR_RETURN(const ModelConfig model, ReadModelConfig(*file));
  if (config.model.context > model.context_length) {
    return InvalidArgument("model.context", "is " + std::to_string(config.model.context) +
                                                "; the model was made for " +
                                                std::to_string(model.context_length));
  }
  context = config.model.context > 0 ? config.model.context : model.context_length;
  if (context < 2) {
    return InvalidArgument(
        "model.context",
        "is " + std::to_string(context) + "; a prompt and an answer need 2 at least");
  }
  const KvGeometry geometry = GeometryOf(model.graph, config.kv);
  RENGA_ASSIGN_OR_RETURN(pages, PagesOf(geometry, config.kv.pool_bytes));
  model_name = ServedModelName(config.model, model.name);

  RENGA_ASSIGN_OR_RETURN(backend, factory(config.device));
  metrics = std::make_unique<ServerMetrics>(model_name, backend->info().name);
  shown_metrics = metrics.get();
  const BackendLimits limits =
      EngineBackendLimits({.scheduler = config.scheduler, .pages = pages});
  RENGA_ASSIGN_OR_RETURN(transformer, Transformer::Load(*file, *backend, limits));
  RENGA_RETURN_IF_ERROR(backend->CreateKvPool(geometry, pages));
  file->ReleasePages();
  metrics->model_load.Set(static_cast<double>(MillisecondsSince(begin)) / 1000.0);
  LogInfo("model_loaded", {{"model", std::string_view(model_name)},
                           {"architecture", std::string_view(model.architecture)},
                           {"context", context},
                           {"backend", std::string_view(backend->info().name)},
                           {"threads", backend->info().threads},
                           {"kv_pages", pages},
                           {"ms", MillisecondsSince(begin)}});
  return OkStatus();
}

ModelInfo ServerApp::Impl::DescribeModel() const {
  const std::span<const TokenId> ends = tokenizer->end_token_ids();
  return {.name = model_name,
          .architecture = transformer->config().architecture,
          .context_length = context,
          .vocab_size = tokenizer->vocab_size(),
          .has_chat_template = chat_template != nullptr,
          .backend = backend->info().name,
          .numerics_id = backend->info().numerics_id,
          .end_token_ids = {ends.begin(), ends.end()},
          .bos_token_id = tokenizer->bos_token_id()};
}

Status ServerApp::Impl::StartEngine() {
  if (tokenizer->vocab_size() != transformer->config().graph.vocab) {
    return InvalidArgument("tokenizer.ggml.tokens",
                           "has " + std::to_string(tokenizer->vocab_size()) +
                               " entries; the model has " +
                               std::to_string(transformer->config().graph.vocab));
  }
  queue = std::make_unique<WaitQueue>(
      WaitQueue::Limits{.max_requests = config.scheduler.max_queue_requests,
                        .max_tokens = config.scheduler.max_queue_tokens});
  engine = std::make_unique<Engine>(
      EngineOptions{.scheduler = config.scheduler, .pages = pages}, *transformer, *queue,
      board, *metrics, clock);
  service = std::make_unique<GenerationServiceImpl>(
      GenerationOptions{.kv_pages = pages,
                        .stall = std::chrono::milliseconds(config.health.stall_ms),
                        .pool = {.max_jobs = config.scheduler.max_queue_requests}},
      DescribeModel(),
      GenerationParts{.tokenizer = *tokenizer,
                      .chat_template = chat_template.get(),
                      .no_template_reason = no_template_reason,
                      .queue = *queue,
                      .board = board,
                      .metrics = *metrics,
                      .clock = clock});
  engine_thread = std::thread([this] {
    engine->Run();
    MutexLock lock(mutex);
    engine_ended = true;
    changed.NotifyAll();
  });
  return OkStatus();
}

bool ServerApp::Impl::StopRequested() {
  MutexLock lock(mutex);
  return stop;
}

Status ServerApp::Start() {
  Impl& impl = *impl_;
  if (impl.config.model.path.empty()) {
    return InvalidArgument("model.path", "is required: the GGUF file to serve");
  }
  RENGA_RETURN_IF_ERROR(impl.Listen());
  for (const auto step : {&Impl::OpenModel, &Impl::LoadModel, &Impl::StartEngine}) {
    if (impl.StopRequested()) return OkStatus();
    RENGA_RETURN_IF_ERROR((impl.*step)());
  }
  RENGA_RETURN_IF_ERROR(
      WarmUp(*impl.service, impl.pages, [&impl] { return impl.StopRequested(); }));
  if (impl.StopRequested()) return OkStatus();
  impl.service->SetReady(true);
  impl.grpc->Serve(*impl.service);
  impl.open_service = impl.service.get();
  impl.ShowHealth();
  LogInfo("ready", {{"model", std::string_view(impl.model_name)},
                    {"ms", MillisecondsSince(impl.begin)}});
  return OkStatus();
}

// ---- While it runs -------------------------------------------------------------------

bool ServerApp::Impl::Ready() const {
  GenerationServiceImpl* open = open_service;
  return open != nullptr && open->Ready();
}

void ServerApp::Impl::ShowHealth() {
  const bool ready = Ready();
  grpc->SetServing(ready);
  metrics->ready.Set(ready ? 1.0 : 0.0);
}

bool ServerApp::Impl::Watch() {
  MutexLock lock(mutex);
  const TimePoint until = std::chrono::steady_clock::now() + kWatchInterval;
  while (!stop && !engine_ended) {
    if (!changed.WaitUntil(mutex, until)) break;
  }
  return !stop && !engine_ended;
}

Status ServerApp::Run() {
  Impl& impl = *impl_;
  if (impl.service == nullptr || impl.open_service == nullptr) return OkStatus();
  while (impl.Watch()) impl.ShowHealth();
  const bool lost = !impl.StopRequested();
  if (lost) LogError("engine_lost");
  impl.Drain();
  impl.StopAll();
  return lost ? Unavailable("the engine has given up; see the log") : OkStatus();
}

void ServerApp::RequestStop() {
  MutexLock lock(impl_->mutex);
  impl_->stop = true;
  impl_->changed.NotifyAll();
}

// ---- Stop ----------------------------------------------------------------------------

void ServerApp::Impl::Drain() {
  const TimePoint drain_begin = std::chrono::steady_clock::now();
  service->StartDrain();
  metrics->ready.Set(0.0);
  LogInfo("draining", {{"calls", grpc->active_calls()}});
  const Duration limit =
      StopRequested() ? Duration(std::chrono::milliseconds(config.drain.timeout_ms))
                      : Duration(kLostEngineGrace);
  if (!grpc->Drain(drain_begin + limit)) {
    LogWarn("drain_timeout", {{"calls", grpc->active_calls()}});
    engine->Stop(Unavailable("the server is shutting down"));
  }
  grpc->Shutdown();
  LogInfo("stopped", {{"ms", MillisecondsSince(drain_begin)}});
}

void ServerApp::Impl::StopAll() {
  open_service = nullptr;
  if (grpc != nullptr) grpc->Shutdown();
  if (engine_thread.joinable()) {
    engine->Stop(Unavailable("the server is shutting down"));
    engine_thread.join();
  }
}

ServerApp::ServerApp(const Config& config, BackendFactory factory)
    : impl_(std::make_unique<Impl>(config, std::move(factory))) {}

ServerApp::~ServerApp() = default;

std::string ServerApp::grpc_address() const {
  return impl_->grpc == nullptr ? "" : impl_->grpc->address();
}

std::string ServerApp::admin_address() const {
  return impl_->admin == nullptr ? "" : impl_->admin->address();
}

bool ServerApp::Ready() const { return impl_->Ready(); }

}  // namespace renga
