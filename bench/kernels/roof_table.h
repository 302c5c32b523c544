// RoofTable: a reporter of Google Benchmark that sets the rates of each op beside what
// the machine could do at most, measured in the same run, and makes a Markdown table of
// it.
//
// Thread rule: one thread calls.

#pragma once

#include <benchmark/benchmark.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace renga {

class RoofTable : public benchmark::BenchmarkReporter {
 public:
  // `working_set`: the bytes that the ops walk through, of which the bandwidth is
  // measured.
  explicit RoofTable(int64_t working_set) : working_set_(working_set) {}

  bool ReportContext(const Context& context) override;
  void ReportRuns(const std::vector<Run>& runs) override;

  // The table, with the roofs above it.
  std::string Markdown() const;

 private:
  struct Roofs {
    double int8_gmacs;
    double float_gmacs;
    double read_gbs;
  };
  const Roofs& RoofsOf(const std::string& isa, int threads);

  const int64_t working_set_;
  std::map<std::string, Roofs> roofs_;  // By "avx512, 2 threads".
  std::vector<std::string> rows_;
};

// Puts `text` between the lines "<!-- roofs: begin -->" and "<!-- roofs: end -->" of a
// file; false with nothing changed if it cannot be read or written or lacks them.
bool WriteBetweenMarks(const std::string& path, const std::string& text);

}  // namespace renga
