#include "app/doctor_command.h"

#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <string>
#include <system_error>
#include <utility>

#include "app/backend_factory.h"
#include "app/doctor_report.h"
#include "app/loaded_model.h"
#include "app/speed_probe.h"
#include "app/system_facts.h"
#include "backend/kv_pages.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "engine/engine.h"
#include "formats/gguf_file.h"
#include "model/model_config.h"
#include "model/weights.h"
#include "transport/api_keys.h"

namespace renga {
namespace {

constexpr Duration kMeasureTime = std::chrono::milliseconds(500);
constexpr int64_t kProbeBytes = int64_t{512} << 20;  // Larger than caches are.

void Note(Verdict verdict, std::string name, std::string text,
          std::vector<Finding>& findings) {
  findings.push_back({verdict, std::move(name), std::move(text)});
}

void NoteStatus(const Status& status, std::string name, std::string good,
                std::vector<Finding>& findings) {
  if (!status.ok()) {
    if (!status.field().empty()) name = status.field();
    return Note(Verdict::kProblem, std::move(name), status.message(), findings);
  }
  if (!good.empty()) Note(Verdict::kGood, std::move(name), std::move(good), findings);
}

// ---- Addresses.

// Binds "host:port" for a moment, as the server would.
Status TryToBind(const std::string& address) {
  const size_t colon = address.rfind(':');
  std::string host = address.substr(0, colon);
  if (host.starts_with('[')) host = host.substr(1, host.size() - 2);
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  addrinfo* found = nullptr;
  const int error =
      getaddrinfo(host.c_str(), address.substr(colon + 1).c_str(), &hints, &found);
  if (error != 0) {
    return InvalidArgument("", address + ": " + gai_strerror(error));
  }
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(found, freeaddrinfo);
  const int handle = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int on = 1;
  if (handle >= 0) setsockopt(handle, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  const bool bound = handle >= 0 && bind(handle, found->ai_addr, found->ai_addrlen) == 0;
  const int why = errno;
  if (handle >= 0) close(handle);
  if (bound) return OkStatus();
  return Unavailable(address + ": " + std::generic_category().message(why));
}

bool IsLoopback(const std::string& address) {
  return address.starts_with("127.") || address.starts_with("localhost:") ||
         address.starts_with("[::1]:");
}

void LookAtAddresses(const Config& config, std::vector<Finding>& findings) {
  const std::pair<const char*, const std::string*> addresses[] = {
      {"grpc.address", &config.grpc.address},
      {"gateway.address", &config.gateway.address},
      {"admin.address", &config.admin.address},
      {"admin.grpc_address", &config.admin.grpc_address}};
  std::vector<std::string> taken;
  for (const auto& [name, address] : addresses) {
    if (address->empty()) continue;
    if (!address->ends_with(":0") &&
        std::find(taken.begin(), taken.end(), *address) != taken.end()) {
      Note(Verdict::kProblem, name, *address + " is already that of another setting",
           findings);
      continue;
    }
    taken.push_back(*address);
    NoteStatus(TryToBind(*address), name, *address + " is free", findings);
    if (config.auth.keys_file.empty() && !IsLoopback(*address)) {
      Note(Verdict::kWarning, name,
           *address +
               " can be reached from elsewhere, and no key is wanted "
               "(auth.keys_file)",
           findings);
    }
  }
}

void LookAtKeys(const Config& config, std::vector<Finding>& findings) {
  if (config.auth.keys_file.empty()) return;
  const auto keys = ApiKeys::Load(config.auth.keys_file);
  NoteStatus(keys.status(), "auth.keys_file", config.auth.keys_file + " can be read",
             findings);
}

// ---- The model.

int64_t Values(const TensorView& view) { return view.rows * view.cols; }

// Of the file; in memory they take about the same.
int64_t BytesOf(const GgufFile& file) {
  int64_t bytes = 0;
  for (const GgufTensor& tensor : file.tensors()) {
    bytes += static_cast<int64_t>(tensor.bytes);
  }
  return bytes;
}

int64_t ActivationBytes(const GraphShape& shape, const BackendLimits& limits) {
  const int64_t heads = shape.heads + 2 * int64_t{shape.kv_heads};
  const int64_t row =
      3 * int64_t{shape.dim} + 2 * heads * shape.head_dim + 2 * int64_t{shape.ffn};
  return 4 * (limits.max_rows * row + limits.max_logit_rows * int64_t{shape.vocab});
}

struct OpenModel {
  std::unique_ptr<GgufFile> file;
  ProbeLayer layer;
  KvGeometry geometry;
  ModelFacts facts;
};

StatusOr<OpenModel> LookAtModel(const Config& config) {
  // All that a server checks before it loads weights.
  RENGA_ASSIGN_OR_RETURN(const std::unique_ptr<LoadedModel> model,
                         LoadedModel::Open(config));
  OpenModel open;
  RENGA_ASSIGN_OR_RETURN(open.file, GgufFile::Open(config.model.path));
  const GraphShape& shape = model->config().graph;
  RENGA_ASSIGN_OR_RETURN(const ModelTensors tensors,
                         FindModelTensors(*open.file, model->config()));
  open.layer = {.gate_up = tensors.layers[0].gate_up, .down = tensors.layers[0].down};
  ModelFacts& facts = open.facts;
  facts.name = model->name();
  facts.architecture = model->config().architecture;
  facts.context = model->context();
  facts.weight_bytes = BytesOf(*open.file);
  // A token of an answer takes one row of the embedding, and all of the head.
  const GgufTensor* embedding = open.file->FindTensor("token_embd.weight");
  facts.read_bytes = facts.weight_bytes;
  if (!model->config().tied_embeddings && embedding != nullptr) {
    facts.read_bytes -= static_cast<int64_t>(embedding->bytes);
  }
  for (const LayerTensors& layer : tensors.layers) {
    for (const TensorView& view : layer.qkv) facts.prompt_macs += Values(view);
    facts.prompt_macs += Values(layer.attention_out[0]);
    for (const TensorView& view : layer.gate_up) facts.prompt_macs += Values(view);
    facts.prompt_macs += Values(layer.down[0]);
  }
  open.geometry = model->geometry();
  facts.page_bytes = KvPageBytes(open.geometry);
  facts.activation_bytes = ActivationBytes(
      shape,
      EngineBackendLimits({.scheduler = config.scheduler, .pages = model->pages()}));
  return open;
}

// ---- Speed.

Status LookAtDevice(const Config& config, const OpenModel* open, bool quick,
                    DoctorFacts& facts) {
  RENGA_ASSIGN_OR_RETURN(const std::unique_ptr<Backend> backend,
                         MakeDefaultBackend(config.device));
  const BackendInfo info = backend->info();
  facts.backend = info.name;
  facts.threads = info.threads;
  facts.gpu = !info.gpu_pci_id.empty();
  facts.gpu_memory_bytes = info.gpu_memory_bytes;
  if (open != nullptr) RENGA_RETURN_IF_ERROR(backend->CheckKv(open->geometry));
  if (quick) return OkStatus();
  if (!facts.gpu) {
    const int32_t threads = std::min(facts.threads, UsableCores(facts.system));
    facts.read_bytes_per_second = MeasureReadBandwidth(
        threads, std::min(kProbeBytes, UsableBytes(facts.system) / 4), kMeasureTime);
  }
  const MadeUpLayer made_up;
  RENGA_ASSIGN_OR_RETURN(
      facts.macs_per_second,
      MeasureProducts(*backend, open != nullptr ? open->layer : made_up.views(),
                      kMeasureTime));
  return OkStatus();
}

}  // namespace

int RunDoctor(const LoadedConfig& loaded, const DoctorOptions& options,
              std::ostream& out) {
  const Config& config = loaded.config;
  // Only what is found is printed: it says the same, and more.
  (void)ConfigureLog("error", config.log.format);
  DoctorReport report;
  std::vector<Finding> seen;
  for (const std::string& warning : loaded.warnings) {
    Note(Verdict::kWarning, "settings", warning, seen);
  }
  report.facts.system = ReadSystemFacts();
  std::optional<OpenModel> open;
  if (config.model.path.empty()) {
    Note(Verdict::kWarning, "model.path",
         "is not set: no model was looked at, and a server needs one", seen);
  } else {
    StatusOr<OpenModel> looked = LookAtModel(config);
    NoteStatus(looked.status(), "model.path", config.model.path + " can be served", seen);
    if (looked.ok()) open = *std::move(looked);
  }
  if (open) report.facts.model = open->facts;
  NoteStatus(LookAtDevice(config, open ? &*open : nullptr, options.quick, report.facts),
             "device", "", seen);
  LookAtAddresses(config, seen);
  LookAtKeys(config, seen);
  report.findings = Judge(report.facts, config);
  report.findings.insert(report.findings.end(), seen.begin(), seen.end());
  out << (options.json ? ReportJson(report) : ReportText(report)) << std::flush;
  return report.Good() ? 0 : 1;
}

}  // namespace renga
