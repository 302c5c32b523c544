#include "bench/kernels/roof_table.h"

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <iterator>

#include "bench/kernels/roofs.h"

namespace renga {
namespace {

// The value of `key:` in "matmul/avx512/576x576/rows:1/threads:2", or `otherwise`.
int Argument(const std::string& name, const std::string& key, int otherwise) {
  const size_t at = name.find("/" + key + ":");
  return at == std::string::npos ? otherwise
                                 : std::stoi(name.substr(at + key.size() + 2));
}

// The part of a name between its first two slashes: the op table.
std::string IsaOf(const std::string& name) {
  const size_t begin = name.find('/') + 1;
  return name.substr(begin, name.find('/', begin) - begin);
}

double CounterOf(const benchmark::BenchmarkReporter::Run& run, const char* name) {
  const auto found = run.counters.find(name);
  return found == run.counters.end() ? 0.0 : static_cast<double>(found->second.value);
}

std::string Cell(const char* format, double value) {
  char text[32];
  std::snprintf(text, sizeof text, format, value);
  return value > 0.0 ? text : "";
}

}  // namespace

bool RoofTable::ReportContext(const Context& /*context*/) { return true; }

const RoofTable::Roofs& RoofTable::RoofsOf(const std::string& isa, int threads) {
  const std::string key = isa + ", threads: " + std::to_string(threads);
  const auto found = roofs_.find(key);
  if (found != roofs_.end()) return found->second;
  const Roofs roofs{.int8_gmacs = PeakInt8Gmacs(isa, threads),
                    .float_gmacs = PeakFloatGmacs(isa, threads),
                    .read_gbs = ReadBandwidth(working_set_, threads)};
  return roofs_.emplace(key, roofs).first->second;
}

void RoofTable::ReportRuns(const std::vector<Run>& runs) {
  for (const Run& run : runs) {
    const std::string name = run.benchmark_name();
    const double gmacs = CounterOf(run, "GMAC/s");
    const double gbs = std::max(CounterOf(run, "GB/s"), CounterOf(run, "int8_GB/s"));
    if (run.run_type != Run::RT_Iteration || (gmacs == 0.0 && gbs == 0.0)) continue;
    const Roofs& roofs = RoofsOf(IsaOf(name), Argument(name, "threads", 1));
    const bool is_int8 = name.rfind("matmul/", 0) == 0;
    // A fine code is two planes of int8, so two products.
    const double products = is_int8 && Argument(name, "coarse", 1) == 0 ? 2.0 : 1.0;
    const double peak = is_int8 ? roofs.int8_gmacs : roofs.float_gmacs;
    const double compute = peak > 0.0 ? gmacs * products / peak : 0.0;
    // What lies in a cache has no share of the memory's roof.
    const bool cached = Argument(name, "cached", 0) != 0;
    const double memory = cached ? 0.0 : gbs / roofs.read_gbs;
    rows_.push_back("| `" + name + "` | " + Cell("%.1f", gmacs) + " | " +
                    Cell("%.1f", gbs) + " | " + Cell("%.0f %%", compute * 100.0) + " | " +
                    Cell("%.0f %%", memory * 100.0) + " |\n");
  }
}

std::string RoofTable::Markdown() const {
  std::string text =
      "| roofs | int8 GMAC/s | float GMAC/s | reading, GB/s |\n| --- | --- | --- | --- "
      "|\n";
  for (const auto& [key, roofs] : roofs_) {
    text += "| " + key + " | " + Cell("%.0f", roofs.int8_gmacs) + " | " +
            Cell("%.0f", roofs.float_gmacs) + " | " + Cell("%.1f", roofs.read_gbs) +
            " |\n";
  }
  text +=
      "\n| op | GMAC/s | GB/s | of the compute roof | of the reading roof |\n"
      "| --- | --- | --- | --- | --- |\n";
  for (const std::string& row : rows_) text += row;
  return text;
}

bool WriteBetweenMarks(const std::string& path, const std::string& text) {
  const std::string begin_mark = "<!-- roofs: begin -->\n";
  const std::string end_mark = "<!-- roofs: end -->";
  std::string content;
  {
    std::ifstream file(path);
    content.assign(std::istreambuf_iterator<char>(file),
                   std::istreambuf_iterator<char>());
  }
  const size_t begin = content.find(begin_mark);
  const size_t end = content.find(end_mark, begin == std::string::npos ? 0 : begin);
  if (begin == std::string::npos || end == std::string::npos) return false;
  content.replace(begin + begin_mark.size(), end - begin - begin_mark.size(), text);
  std::ofstream file(path, std::ios::trunc);
  file << content;
  return static_cast<bool>(file.flush());
}

}  // namespace renga
