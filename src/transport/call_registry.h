// CallRegistry: the calls that the Cancel RPC can find, by tenant and name.
//
// A call has two names: the server's id for it, and the x-request-id that its client
// sent, which several calls of a tenant may share. It stands here from before the service
// knows it until its sink's OnDone.
//
// A cancel that comes before the service knows the request would be lost there, so the
// registry remembers it: whoever starts a request asks WasCancelled afterwards, and
// cancels again.
//
// Thread safety: every method may be called from any thread.

#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/mutex.h"
#include "renga/types.h"

namespace renga {

class CallRegistry {
 public:
  // One call; it leaves the registry with this object.
  class Entry {
   public:
    // `client_name`: its x-request-id, or "". The registry outlives the entry.
    Entry(CallRegistry& registry, RequestId id, std::string_view tenant,
          std::string_view client_name);
    ~Entry();
    Entry(const Entry&) = delete;
    Entry& operator=(const Entry&) = delete;

   private:
    CallRegistry& registry_;
    const RequestId id_;
  };

  // The calls of `tenant` that have one of the names, each once; they count as cancelled
  // from now on. The caller tells the service.
  std::vector<RequestId> Cancel(std::string_view tenant,
                                std::span<const std::string> names)
      RENGA_EXCLUDES(mutex_);

  // Whether a call that is still here was cancelled.
  bool WasCancelled(RequestId id) const RENGA_EXCLUDES(mutex_);

  size_t size() const RENGA_EXCLUDES(mutex_);

 private:
  struct Call {
    std::vector<std::string> keys;  // Its keys in by_name_.
    bool cancelled = false;
  };

  static std::string Key(std::string_view tenant, std::string_view name);
  void Add(RequestId id, std::string_view tenant, std::string_view client_name)
      RENGA_EXCLUDES(mutex_);
  void Remove(RequestId id) RENGA_EXCLUDES(mutex_);

  mutable Mutex mutex_;
  std::map<RequestId, Call> calls_ RENGA_GUARDED_BY(mutex_);
  std::unordered_multimap<std::string, RequestId> by_name_ RENGA_GUARDED_BY(mutex_);
};

}  // namespace renga
