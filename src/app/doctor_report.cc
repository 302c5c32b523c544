#include "app/doctor_report.h"

#include <algorithm>
#include <cstdio>

#include "gateway/json_writer.h"
#include "renga/backend.h"

namespace renga {
namespace {

std::string Rounded(double value, int digits) {
  char text[64];
  std::snprintf(text, sizeof text, "%.*f", digits, value);
  return text;
}

// "1.2 GiB".
std::string Bytes(int64_t bytes) {
  const double value = static_cast<double>(bytes);
  if (bytes < 1 << 20) return Rounded(value / 1024, 1) + " KiB";
  if (bytes < 1 << 30) return Rounded(value / (1 << 20), 0) + " MiB";
  return Rounded(value / (1 << 30), 1) + " GiB";
}

std::string Giga(double per_second, const char* unit) {
  return Rounded(per_second / 1e9, 1) + ' ' + unit;
}

std::string TokensPerSecond(double value) {
  return Rounded(value, value < 100 ? 1 : 0) + " tokens/s";
}

bool Has(const SystemFacts& system, std::string_view flag) {
  return std::find(system.flags.begin(), system.flags.end(), flag) != system.flags.end();
}

std::string Joined(const std::vector<std::string>& words) {
  std::string out;
  for (const std::string& word : words) out += (out.empty() ? "" : " ") + word;
  return out.empty() ? "none that renga knows" : out;
}

void JudgeCores(const DoctorFacts& facts, std::vector<Finding>& findings) {
  const SystemFacts& system = facts.system;
  const int32_t usable = UsableCores(system);
  std::string text = std::to_string(usable) + " of " + std::to_string(system.cores) +
                     " cores may be used";
  if (system.quota_cores > 0.0) {
    text += "; the control group allows " + Rounded(system.quota_cores, 1);
  }
  if (facts.threads > usable) {
    findings.push_back({Verdict::kWarning, "device.threads",
                        "would be " + std::to_string(facts.threads) + ", but " + text +
                            ": every step waits for threads that do not run. Set it to " +
                            std::to_string(usable)});
    return;
  }
  findings.push_back({Verdict::kGood, "cores", text});
}

void JudgeLoad(const SystemFacts& system, std::vector<Finding>& findings) {
  if (system.load <= 0.5 * UsableCores(system)) return;
  findings.push_back(
      {Verdict::kWarning, "load",
       "other programs are running (" + Rounded(system.load, 1) +
           " over the last minute): the speeds measured here are too low"});
}

void JudgeBackend(const DoctorFacts& facts, std::vector<Finding>& findings) {
  if (facts.backend.empty()) return;
  if (facts.gpu) {
    findings.push_back({Verdict::kGood, "gpu", facts.backend});
  } else if (facts.backend == "cpu/portable" && Has(facts.system, "avx2")) {
    findings.push_back({Verdict::kWarning, "device.isa",
                        "portable is chosen although this CPU has more: several times "
                        "slower, for the same answers"});
  } else if (facts.backend == "cpu/portable") {
    findings.push_back(
        {Verdict::kWarning, "cpu", "has neither AVX2 nor AVX-512: answers will be slow"});
  } else {
    findings.push_back({Verdict::kGood, "cpu", "kernels: " + facts.backend});
  }
}

void JudgeHugePages(const SystemFacts& system, std::vector<Finding>& findings) {
  if (system.huge_pages == "never") {
    findings.push_back({Verdict::kWarning, "huge pages",
                        "are off (transparent_hugepage is never): reading the weights is "
                        "slower. As root: echo madvise > "
                        "/sys/kernel/mm/transparent_hugepage/enabled"});
  } else if (!system.huge_pages.empty()) {
    findings.push_back({Verdict::kGood, "huge pages", system.huge_pages});
  }
}

void JudgeMemory(const DoctorFacts& facts, const Config& config,
                 std::vector<Finding>& findings) {
  const int64_t usable = facts.gpu ? facts.gpu_memory_bytes : UsableBytes(facts.system);
  if (!facts.model || usable == 0) return;
  const ModelFacts& model = *facts.model;
  const int64_t fixed = model.weight_bytes + model.activation_bytes;
  const int64_t pool = config.kv.pool_bytes / model.page_bytes * model.page_bytes;
  const std::string parts =
      "weights " + Bytes(model.weight_bytes) + ", activations " +
      Bytes(model.activation_bytes) + ", KV pool up to " + Bytes(pool) + "; " +
      (facts.gpu ? "the GPU has " + Bytes(usable) : Bytes(usable) + " can be had");
  if (fixed > usable) {
    findings.push_back({Verdict::kProblem, "memory", "the model does not fit: " + parts});
  } else if (fixed + pool > usable) {
    findings.push_back({Verdict::kProblem, "kv.pool_bytes",
                        "does not fit beside the model once it is used: " + parts});
  } else {
    findings.push_back({Verdict::kGood, "memory", parts});
  }
}

void JudgePool(const ModelFacts& model, const Config& config,
               std::vector<Finding>& findings) {
  const int64_t tokens = config.kv.pool_bytes / model.page_bytes * kPageTokens;
  const std::string text = "holds " + std::to_string(tokens) +
                           " tokens; a request may have " + std::to_string(model.context);
  if (tokens == 0) {
    findings.push_back({Verdict::kProblem, "kv.pool_bytes",
                        "has no room for one page of " + Bytes(model.page_bytes)});
  } else if (tokens < model.context) {
    findings.push_back({Verdict::kWarning, "kv.pool_bytes",
                        text + ": longer ones are refused, or end early"});
  } else {
    findings.push_back({Verdict::kGood, "kv.pool_bytes", text});
  }
}

const char* Mark(Verdict verdict) {
  switch (verdict) {
    case Verdict::kGood:
      return "ok      ";
    case Verdict::kWarning:
      return "warning ";
    case Verdict::kProblem:
      return "PROBLEM ";
  }
  return "";
}

const char* Word(Verdict verdict) {
  switch (verdict) {
    case Verdict::kGood:
      return "ok";
    case Verdict::kWarning:
      return "warning";
    case Verdict::kProblem:
      return "problem";
  }
  return "";
}

void AppendLine(const char* name, const std::string& value, std::string& out) {
  std::string line(name);
  line.resize(std::max<size_t>(line.size(), 18), ' ');
  out += line + value + '\n';
}

void AppendPrediction(const Prediction& prediction, std::string& out) {
  if (prediction.decode_tokens_per_second > 0.0) {
    AppendLine("  one answer",
               "about " + TokensPerSecond(prediction.decode_tokens_per_second) +
                   " at best, by the memory's speed",
               out);
  }
  if (prediction.prefill_tokens_per_second > 0.0) {
    AppendLine("  a prompt",
               "about " + TokensPerSecond(prediction.prefill_tokens_per_second) +
                   ", by the speed of products",
               out);
  }
}

void WriteMachine(const DoctorFacts& facts, JsonWriter& json) {
  const SystemFacts& system = facts.system;
  json.Key("machine").BeginObject().Field("cpu", system.cpu).Key("flags").BeginArray();
  for (const std::string& flag : system.flags) json.String(flag);
  json.EndArray()
      .Field("cores", system.cores)
      .Field("usable_cores", UsableCores(system))
      .Field("quota_cores", system.quota_cores)
      .Field("memory_bytes", system.memory_bytes)
      .Field("usable_bytes", UsableBytes(system))
      .Field("huge_pages", system.huge_pages)
      .Field("backend", facts.backend)
      .Field("threads", facts.threads)
      .Field("gpu_memory_bytes", facts.gpu_memory_bytes)
      .Field("read_bytes_per_second", facts.read_bytes_per_second)
      .Field("macs_per_second", facts.macs_per_second)
      .EndObject();
}

void WriteModel(const DoctorFacts& facts, JsonWriter& json) {
  if (!facts.model) {
    json.NullField("model");
    return;
  }
  const ModelFacts& model = *facts.model;
  const Prediction prediction = Predict(facts);
  json.Key("model")
      .BeginObject()
      .Field("name", model.name)
      .Field("architecture", model.architecture)
      .Field("context", model.context)
      .Field("weight_bytes", model.weight_bytes)
      .Field("read_bytes_per_token", model.read_bytes)
      .Field("prompt_macs_per_token", model.prompt_macs)
      .Field("page_bytes", model.page_bytes)
      .Field("activation_bytes", model.activation_bytes)
      .Field("predicted_decode_tokens_per_second", prediction.decode_tokens_per_second)
      .Field("predicted_prefill_tokens_per_second", prediction.prefill_tokens_per_second)
      .EndObject();
}

}  // namespace

Prediction Predict(const DoctorFacts& facts) {
  Prediction prediction;
  if (!facts.model) return prediction;
  const ModelFacts& model = *facts.model;
  if (model.read_bytes > 0) {
    prediction.decode_tokens_per_second =
        facts.read_bytes_per_second / static_cast<double>(model.read_bytes);
  }
  if (model.prompt_macs > 0) {
    prediction.prefill_tokens_per_second =
        facts.macs_per_second / static_cast<double>(model.prompt_macs);
  }
  return prediction;
}

std::vector<Finding> Judge(const DoctorFacts& facts, const Config& config) {
  std::vector<Finding> findings;
  JudgeBackend(facts, findings);
  JudgeCores(facts, findings);
  JudgeLoad(facts.system, findings);
  // A GPU does not read the weights from the machine's memory.
  if (!facts.gpu) JudgeHugePages(facts.system, findings);
  JudgeMemory(facts, config, findings);
  if (facts.model) JudgePool(*facts.model, config, findings);
  return findings;
}

bool DoctorReport::Good() const {
  return std::none_of(findings.begin(), findings.end(), [](const Finding& finding) {
    return finding.verdict == Verdict::kProblem;
  });
}

std::string ReportText(const DoctorReport& report) {
  const DoctorFacts& facts = report.facts;
  const SystemFacts& system = facts.system;
  std::string out;
  AppendLine("CPU", system.cpu.empty() ? "not known" : system.cpu, out);
  AppendLine("  flags", Joined(system.flags), out);
  AppendLine(facts.gpu ? "GPU" : "  kernels",
             facts.backend.empty()
                 ? "none"
                 : facts.backend + ", " + std::to_string(facts.threads) + " threads",
             out);
  AppendLine("memory",
             Bytes(system.memory_bytes) + ", of which " + Bytes(UsableBytes(system)) +
                 " can be had",
             out);
  if (facts.read_bytes_per_second > 0.0) {
    AppendLine("  reads at", Giga(facts.read_bytes_per_second, "GB/s"), out);
  }
  if (facts.macs_per_second > 0.0) {
    AppendLine("products", Giga(facts.macs_per_second, "G multiply-adds/s"), out);
  }
  if (facts.model) {
    AppendLine("model", facts.model->name + " (" + facts.model->architecture + ")", out);
    AppendLine("  weights", Bytes(facts.model->weight_bytes), out);
    AppendPrediction(Predict(facts), out);
  }
  out += '\n';
  for (const Finding& finding : report.findings) {
    out += Mark(finding.verdict) + finding.name + ": " + finding.text + '\n';
  }
  return out;
}

std::string ReportJson(const DoctorReport& report) {
  JsonWriter json;
  json.BeginObject().Field("ok", report.Good());
  WriteMachine(report.facts, json);
  WriteModel(report.facts, json);
  json.Key("findings").BeginArray();
  for (const Finding& finding : report.findings) {
    json.BeginObject()
        .Field("verdict", Word(finding.verdict))
        .Field("name", finding.name)
        .Field("text", finding.text)
        .EndObject();
  }
  json.EndArray().EndObject();
  return std::move(json).Take() + '\n';
}

}  // namespace renga
