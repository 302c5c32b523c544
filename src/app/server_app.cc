#include "app/server_app.h"

#include <atomic>
#include <functional>
#include <thread>
#include <utility>

#include "app/app_control.h"
#include "app/loaded_model.h"
#include "app/memory_check.h"
#include "app/progress_bar.h"
#include "app/warm_up.h"
#include "backend/nvml.h"
#include "base/log.h"
#include "base/memory_ledger.h"
#include "base/mutex.h"
#include "base/status_macros.h"
#include "base/system_clock.h"
#include "batching/engine_snapshot.h"
#include "batching/wait_queue.h"
#include "engine/engine.h"
#include "gateway/admin_listener.h"
#include "gateway/http_gateway.h"
#include "metrics/gateway_metrics.h"
#include "metrics/server_metrics.h"
#include "service/generation_service.h"
#include "transport/admin_server.h"
#include "transport/api_keys.h"
#include "transport/grpc_server.h"

namespace renga {
namespace {

// How often health is looked at.
constexpr auto kWatchInterval = std::chrono::milliseconds(100);
// What a lost engine's clients get to read their errors.
constexpr auto kLostEngineGrace = std::chrono::seconds(1);
// What HTTP clients get to take the last bytes of their answers.
constexpr auto kGatewayGrace = std::chrono::seconds(1);

int64_t MillisecondsSince(TimePoint begin) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(
             std::chrono::steady_clock::now() - begin)
      .count();
}

double SecondsSince(TimePoint begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

Duration Milliseconds(int32_t count) { return std::chrono::milliseconds(count); }

}  // namespace

struct ServerApp::Impl {
  Impl(const Config& c, BackendFactory f, std::ostream* p)
      : config(c), factory(std::move(f)), progress(p) {}
  ~Impl() { StopAll(); }

  Status Listen();
  Status StartGateway();
  Status LoadModel();
  Status LoadWeights();
  MetricsOptions MetricsSettings() const;
  std::string Exposition() const;
  std::string Requests(bool slow_only) const;
  Status StartEngine();
  EngineOptions EngineSettings() const;
  GenerationOptions ServiceSettings() const;
  WaitQueue::Limits QueueLimits() const;
  Status Warm();
  void StartMemoryCheck();
  void Open();
  bool StopRequested() RENGA_EXCLUDES(mutex);
  void RequestStop() RENGA_EXCLUDES(mutex);
  bool Ready() const;
  void ShowHealth();
  // Waits for the next look at health; false once it is time to end.
  bool Watch() RENGA_EXCLUDES(mutex);
  void Drain();
  void StopGateway(TimePoint deadline);
  void StopAll();

  const Config config;
  const BackendFactory factory;
  std::ostream* const progress;
  const SystemClock clock;
  const TimePoint begin = std::chrono::steady_clock::now();

  GatewayMetrics gateway_metrics;
  std::unique_ptr<ServerMetrics> metrics;
  std::unique_ptr<LoadedModel> model;
  std::unique_ptr<WaitQueue> queue;
  SnapshotBoard board;
  std::unique_ptr<Engine> engine;
  std::unique_ptr<GenerationServiceImpl> service;
  std::unique_ptr<Nvml> nvml;  // Before `memory`, which reads it.
  std::unique_ptr<MemoryCheck> memory;
  std::unique_ptr<AppControl> control;
  std::unique_ptr<GrpcServer> grpc;
  std::unique_ptr<HttpGateway> gateway;  // After `grpc`, which it calls.
  std::unique_ptr<AdminServer> admin_grpc;
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
  std::shared_ptr<const ApiKeys> keys;
  if (!config.auth.keys_file.empty()) {
    RENGA_ASSIGN_OR_RETURN(keys, ApiKeys::Load(config.auth.keys_file));
  }
  RENGA_ASSIGN_OR_RETURN(grpc, GrpcServer::Listen(config.grpc, keys));
  RENGA_ASSIGN_OR_RETURN(admin_grpc,
                         AdminServer::Listen(config.admin.grpc_address, keys));
  RENGA_RETURN_IF_ERROR(StartGateway());
  RENGA_ASSIGN_OR_RETURN(
      admin,
      AdminListener::Start(config.admin.address,
                           {.metrics = [this] { return Exposition(); },
                            .ready = [this] { return Ready(); },
                            .requests = [this](bool slow) { return Requests(slow); }}));
  LogInfo("listening",
          {{"grpc", std::string_view(grpc->address())},
           {"admin", std::string_view(admin->address())},
           {"admin_grpc", std::string_view(admin_grpc->address())},
           {"gateway", gateway == nullptr ? std::string("off") : gateway->address()},
           {"keys", keys == nullptr ? "off" : "on"}});
  return OkStatus();
}

Status ServerApp::Impl::StartGateway() {
  if (config.gateway.address.empty()) return OkStatus();
  StatusOr<std::unique_ptr<HttpGateway>> started = HttpGateway::Start(
      config.gateway, {grpc->InProcessChannel(TargetChannelArguments())},
      {.require_key = !config.auth.keys_file.empty(),
       .write_timeout = Milliseconds(config.grpc.write_timeout_ms),
       .metrics = &gateway_metrics});
  RENGA_RETURN_IF_ERROR(started.status());
  gateway = *std::move(started);
  return OkStatus();
}

std::string ServerApp::Impl::Exposition() const {
  const ServerMetrics* shown = shown_metrics;
  std::string text = shown == nullptr ? "" : shown->Serialize();
  if (!config.gateway.address.empty()) text += gateway_metrics.Serialize();
  return text;
}

std::string ServerApp::Impl::Requests(bool slow_only) const {
  const FlightRecorder nothing({});
  const ServerMetrics* shown = shown_metrics;
  return (shown == nullptr ? nothing : shown->flight_recorder)
      .Trace(slow_only, clock.Now());
}

MetricsOptions ServerApp::Impl::MetricsSettings() const {
  return {.otel_aliases = config.metrics.otel_aliases,
          .recorder = {.requests = config.debug.recorded_requests,
                       .slow = Milliseconds(config.debug.slow_ms)}};
}

Status ServerApp::Impl::LoadWeights() {
  std::unique_ptr<ProgressBar> bar;
  const auto show = [&](int64_t done, int64_t total) {
    if (progress == nullptr) return;
    if (bar == nullptr) {
      bar = std::make_unique<ProgressBar>(*progress, "Loading", total, true);
    }
    bar->Update(done);
    if (done == total) bar->Finish();
  };
  return model->LoadWeights(EngineBackendLimits(EngineSettings()), show);
}

Status ServerApp::Impl::LoadModel() {
  RENGA_ASSIGN_OR_RETURN(model, LoadedModel::Open(config));
  RENGA_RETURN_IF_ERROR(model->MakeDevice(factory));
  const BackendInfo device = model->backend().info();
  metrics =
      std::make_unique<ServerMetrics>(model->name(), device.name, MetricsSettings());
  shown_metrics = metrics.get();
  RENGA_RETURN_IF_ERROR(LoadWeights());
  metrics->model_load.Set(SecondsSince(begin));
  metrics->SetKvPageBytes(model->backend().page_bytes());
  LogInfo("model_loaded",
          {{"model", std::string_view(model->name())},
           {"architecture", std::string_view(model->config().architecture)},
           {"context", model->context()},
           {"backend", std::string_view(device.name)},
           {"threads", device.threads},
           {"kv_pages", model->pages()},
           {"ms", MillisecondsSince(begin)}});
  return OkStatus();
}

EngineOptions ServerApp::Impl::EngineSettings() const {
  return {.scheduler = config.scheduler,
          .pages = model->pages(),
          .prefix_cache = config.kv.prefix_cache};
}

GenerationOptions ServerApp::Impl::ServiceSettings() const {
  const SchedulerSettings& scheduler = config.scheduler;
  return {.kv_pages = model->pages(),
          .stall = Milliseconds(config.health.stall_ms),
          .pool = {.max_jobs = scheduler.max_queue_requests},
          .queue = QueueLimits(),
          .max_sequences = scheduler.max_sequences,
          // The other policies do not wait for company.
          .window = Milliseconds(scheduler.policy == "window" ? scheduler.window_ms : 0),
          .first_token_limit = Milliseconds(scheduler.first_token_limit_ms),
          .prefix_cache = config.kv.prefix_cache};
}

WaitQueue::Limits ServerApp::Impl::QueueLimits() const {
  return {.max_requests = config.scheduler.max_queue_requests,
          .max_tokens = config.scheduler.max_queue_tokens};
}

Status ServerApp::Impl::StartEngine() {
  queue = std::make_unique<WaitQueue>(QueueLimits());
  engine = std::make_unique<Engine>(EngineSettings(), model->transformer(), *queue, board,
                                    *metrics, clock);
  service = std::make_unique<GenerationServiceImpl>(
      ServiceSettings(), model->Describe(),
      GenerationParts{.tokenizer = model->tokenizer(),
                      .chat_template = model->chat_template(),
                      .no_template_reason = model->no_template_reason(),
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

Status ServerApp::Impl::Warm() {
  const TimePoint warm_begin = std::chrono::steady_clock::now();
  RENGA_RETURN_IF_ERROR(
      WarmUp(*service, model->pages(), [this] { return StopRequested(); }));
  metrics->warm_up.Set(SecondsSince(warm_begin));
  return OkStatus();
}

// After the warm-up: what that touched for the first time is no growth.
void ServerApp::Impl::StartMemoryCheck() {
  const BackendInfo device = model->backend().info();
  if (!device.gpu_pci_id.empty()) {
    nvml = Nvml::Open(device.gpu_index, device.gpu_pci_id);
    if (nvml == nullptr) LogWarn("no_gpu_figures", {{"reason", "NVML is not there"}});
  }
  memory = std::make_unique<MemoryCheck>(
      MemoryCheck::Parts{.ledger = MemoryLedger::Process(),
                         .board = board,
                         .metrics = *metrics,
                         .clock = clock,
                         .kv_page_bytes = model->backend().page_bytes(),
                         .kv_open_page_bytes = model->backend().open_page_bytes(),
                         .kv_on_gpu = !device.gpu_pci_id.empty(),
                         .gpu = nvml == nullptr ? std::function<GpuFigures()>()
                                                : [this] { return nvml->Read(); }});
  const Duration interval = Milliseconds(config.memory.check_interval_ms);
  if (interval > Duration::zero()) {
    memory->Start(interval);
  } else {
    memory->Look();  // Once, so that the gauges say what there is.
  }
  control = std::make_unique<AppControl>(*memory, *queue, [this] { RequestStop(); });
}

// From here on a request is served.
void ServerApp::Impl::Open() {
  service->SetReady(true);
  grpc->Serve(*service, *metrics);
  admin_grpc->Serve(*control);
  open_service = service.get();
  ShowHealth();
  LogInfo("ready",
          {{"model", std::string_view(model->name())}, {"ms", MillisecondsSince(begin)}});
}

Status ServerApp::Start() {
  Impl& impl = *impl_;
  if (impl.config.model.path.empty()) {
    return InvalidArgument("model.path", "is required: the GGUF file to serve");
  }
  for (const auto step :
       {&Impl::Listen, &Impl::LoadModel, &Impl::StartEngine, &Impl::Warm}) {
    if (impl.StopRequested()) return OkStatus();
    RENGA_RETURN_IF_ERROR((impl.*step)());
  }
  if (impl.StopRequested()) return OkStatus();
  impl.StartMemoryCheck();
  impl.Open();
  return OkStatus();
}

// ---- While it runs -------------------------------------------------------------------

bool ServerApp::Impl::StopRequested() {
  MutexLock lock(mutex);
  return stop;
}

void ServerApp::Impl::RequestStop() {
  MutexLock lock(mutex);
  stop = true;
  changed.NotifyAll();
}

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

void ServerApp::RequestStop() { impl_->RequestStop(); }

// ---- Stop ----------------------------------------------------------------------------

void ServerApp::Impl::Drain() {
  const TimePoint drain_begin = std::chrono::steady_clock::now();
  service->StartDrain();
  if (gateway != nullptr) gateway->StartDrain();
  metrics->ready.Set(0.0);
  LogInfo("draining", {{"calls", grpc->active_calls()}});
  const Duration limit = StopRequested() ? Milliseconds(config.drain.timeout_ms)
                                         : Duration(kLostEngineGrace);
  if (!grpc->Drain(drain_begin + limit)) {
    LogWarn("drain_timeout", {{"calls", grpc->active_calls()}});
    engine->Stop(Unavailable("the server is shutting down"));
  }
  StopGateway(drain_begin + limit + kGatewayGrace);
  grpc->Shutdown();
  LogInfo("stopped", {{"ms", MillisecondsSince(drain_begin)}});
}

// While the server behind it still answers.
void ServerApp::Impl::StopGateway(TimePoint deadline) {
  if (gateway == nullptr) return;
  gateway->WaitIdle(deadline);
  gateway.reset();
}

void ServerApp::Impl::StopAll() {
  open_service = nullptr;
  StopGateway(std::chrono::steady_clock::now());
  if (grpc != nullptr) grpc->Shutdown();
  // While the engine runs: a call may wait for its answer.
  if (admin_grpc != nullptr) admin_grpc->Shutdown();
  if (engine_thread.joinable()) {
    engine->Stop(Unavailable("the server is shutting down"));
    engine_thread.join();
  }
}

ServerApp::ServerApp(const Config& config, BackendFactory factory, std::ostream* progress)
    : impl_(std::make_unique<Impl>(config, std::move(factory), progress)) {}

ServerApp::~ServerApp() = default;

std::string ServerApp::grpc_address() const {
  return impl_->grpc == nullptr ? "" : impl_->grpc->address();
}

std::string ServerApp::gateway_address() const {
  return impl_->gateway == nullptr ? "" : impl_->gateway->address();
}

std::string ServerApp::admin_address() const {
  return impl_->admin == nullptr ? "" : impl_->admin->address();
}

std::string ServerApp::admin_grpc_address() const {
  return impl_->admin_grpc == nullptr ? "" : impl_->admin_grpc->address();
}

bool ServerApp::Ready() const { return impl_->Ready(); }

}  // namespace renga
