// What `renga doctor` found, its judgement of it, and how it is told.
//
// Thread safety: plain values and pure functions.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "app/system_facts.h"
#include "renga/config.h"

namespace renga {

enum class Verdict : uint8_t {
  kGood,
  kWarning,  // It would work, but worse than it could.
  kProblem,  // A server with these settings would not start, or not live long.
};

struct Finding {
  Verdict verdict = Verdict::kGood;
  std::string name;  // "memory", or the setting: "kv.pool_bytes".
  std::string text;
};

// What a model asks for.
struct ModelFacts {
  std::string name;
  std::string architecture;
  int64_t context = 0;           // Tokens, as a server would serve it.
  int64_t weight_bytes = 0;      // In memory.
  int64_t read_bytes = 0;        // Of the weights, for each token of a single answer.
  int64_t prompt_macs = 0;       // Multiply-adds for each token of a prompt.
  int64_t page_bytes = 0;        // Of 64 tokens of keys and values.
  int64_t activation_bytes = 0;  // Of the largest step.
};

struct DoctorFacts {
  SystemFacts system;
  std::string backend;  // "cpu/avx512"; empty: none could be made.
  int32_t threads = 0;
  bool gpu = false;                    // The backend computes on one...
  int64_t gpu_memory_bytes = 0;        // ... with so much memory; 0: not known.
  double read_bytes_per_second = 0.0;  // By the CPU. 0: not measured.
  double macs_per_second = 0.0;        // 0: not measured.
  std::optional<ModelFacts> model;
};

struct Prediction {
  double decode_tokens_per_second = 0.0;   // Of one answer alone. 0: not known.
  double prefill_tokens_per_second = 0.0;  // Of one long prompt. 0: not known.
};

// One answer reads every weight once for each token, so memory sets its pace; a prompt
// multiplies every weight once for each token, so arithmetic does.
Prediction Predict(const DoctorFacts& facts);

// What the facts say about the settings.
std::vector<Finding> Judge(const DoctorFacts& facts, const Config& config);

struct DoctorReport {
  DoctorFacts facts;
  std::vector<Finding> findings;

  bool Good() const;  // No finding is a problem.
};

std::string ReportText(const DoctorReport& report);
std::string ReportJson(const DoctorReport& report);

}  // namespace renga
