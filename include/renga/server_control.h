// ServerControl: what an operator may do to a running server; called by the Admin
// service.
//
// Thread safety: every method may be called from any thread.

#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "renga/status.h"

namespace renga {

struct MemoryReport {
  struct Row {
    std::string purpose;  // "weights", "kv_pool", ...
    int64_t bytes = 0;    // Live, or reserved for what is touched when used.
    int64_t buffers = 0;
    int64_t bytes_per_hour = 0;  // Growth that the check sees at equal load; 0: none.
    bool leak_suspected = false;
  };
  std::vector<Row> rows;  // By purpose; then "heap" (the C++ heap) and "process" (RSS).
  int64_t kv_pages_total = 0;
  int64_t kv_pages_used = 0;  // By sequences.
  int64_t kv_pages_cached = 0;
  int64_t kv_page_bytes = 0;
};

class ServerControl {
 public:
  virtual ~ServerControl() = default;
  virtual MemoryReport ReportMemory() = 0;
  // Gives up every cached page that no sequence uses; returns how many. UNAVAILABLE if
  // the engine does not answer in time.
  virtual StatusOr<int64_t> FlushCache() = 0;
  // As a first SIGTERM does.
  virtual void StartDrain() = 0;
  // trace | debug | info | warn | error, until the next start.
  virtual Status SetLogLevel(std::string_view level) = 0;
};

}  // namespace renga
