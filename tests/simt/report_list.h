// The reports of one launch, the same thing at the same place once.
//
// Thread safety: none.

#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "tests/simt/simt.h"

namespace renga::test {

// A place in a kernel: file and line from the context's methods, an address of code from
// the hooks, which know no more.
struct Site {
  const char* file = nullptr;
  int line = 0;
  const void* pc = nullptr;

  std::string ToString() const;
  friend bool operator==(const Site& a, const Site& b) {
    return a.file == b.file && a.line == b.line && (a.file != nullptr || a.pc == b.pc);
  }
};

class ReportList {
 public:
  // Whether (what, site) is there already; counts it then. `what` is a literal.
  bool Repeats(const char* what, const Site& site);
  void Add(const char* what, const Site& site, SimtReport report);

  std::vector<SimtReport> Take();

 private:
  using Key = std::tuple<const char*, const char*, int, const void*>;
  static Key KeyOf(const char* what, const Site& site);

  std::map<Key, size_t> known_;
  std::vector<SimtReport> reports_;
};

}  // namespace renga::test
