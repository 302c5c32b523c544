// AppControl: what the Admin service may do to this server, put together from its parts.
//
// Thread safety: every method may be called from any thread.

#pragma once

#include <functional>

#include "app/memory_check.h"
#include "batching/wait_queue.h"
#include "renga/server_control.h"

namespace renga {

class AppControl final : public ServerControl {
 public:
  // How long FlushCache waits: the engine looks at its mail between two steps.
  static constexpr Duration kFlushTimeout = std::chrono::seconds(5);

  // `memory` and `queue` outlive this; `start_drain` must not block.
  AppControl(MemoryCheck& memory, WaitQueue& queue, std::function<void()> start_drain,
             Duration flush_timeout = kFlushTimeout);

  MemoryReport ReportMemory() override;
  StatusOr<int64_t> FlushCache() override;
  void StartDrain() override;
  Status SetLogLevel(std::string_view level) override;

 private:
  MemoryCheck& memory_;
  WaitQueue& queue_;
  const std::function<void()> start_drain_;
  const Duration flush_timeout_;
};

}  // namespace renga
