#include "tests/simt/report_list.h"

#include <utility>

#include "tests/simt/source_lines.h"

namespace renga::test {

std::string Site::ToString() const {
  if (file == nullptr) return pc == nullptr ? "" : SourceLine(pc);
  return BaseName(file) + ":" + std::to_string(line);
}

ReportList::Key ReportList::KeyOf(const char* what, const Site& site) {
  return {what, site.file, site.line, site.file == nullptr ? site.pc : nullptr};
}

bool ReportList::Repeats(const char* what, const Site& site) {
  const auto it = known_.find(KeyOf(what, site));
  if (it == known_.end()) return false;
  ++reports_[it->second].times;
  return true;
}

void ReportList::Add(const char* what, const Site& site, SimtReport report) {
  report.what = what;
  report.where = site.ToString();
  known_.emplace(KeyOf(what, site), reports_.size());
  reports_.push_back(std::move(report));
}

std::vector<SimtReport> ReportList::Take() {
  known_.clear();
  return std::exchange(reports_, {});
}

}  // namespace renga::test
