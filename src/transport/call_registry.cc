#include "transport/call_registry.h"

#include <cstdint>
#include <utility>

#include "base/check.h"

namespace renga {

CallRegistry::Entry::Entry(CallRegistry& registry, RequestId id, std::string_view tenant,
                           std::string_view client_name)
    : registry_(registry), id_(id) {
  registry_.Add(id, tenant, client_name);
}

CallRegistry::Entry::~Entry() { registry_.Remove(id_); }

// A tenant's name is printable text, so the first NUL is the border.
std::string CallRegistry::Key(std::string_view tenant, std::string_view name) {
  std::string key(tenant);
  key += '\0';
  key += name;
  return key;
}

void CallRegistry::Add(RequestId id, std::string_view tenant,
                       std::string_view client_name) {
  const std::string own_name = std::to_string(static_cast<uint64_t>(id));
  Call call;
  call.keys.push_back(Key(tenant, own_name));
  if (!client_name.empty() && client_name != own_name) {
    call.keys.push_back(Key(tenant, client_name));
  }
  MutexLock lock(mutex_);
  for (const std::string& key : call.keys) by_name_.emplace(key, id);
  const bool fresh = calls_.emplace(id, std::move(call)).second;
  RENGA_CHECK(fresh);
}

void CallRegistry::Remove(RequestId id) {
  MutexLock lock(mutex_);
  const auto call = calls_.find(id);
  for (const std::string& key : call->second.keys) {
    auto [begin, end] = by_name_.equal_range(key);
    while (begin->second != id) ++begin;
    by_name_.erase(begin);
  }
  calls_.erase(call);
}

std::vector<RequestId> CallRegistry::Cancel(std::string_view tenant,
                                            std::span<const std::string> names) {
  std::vector<RequestId> cancelled;
  MutexLock lock(mutex_);
  for (const std::string& name : names) {
    const auto [begin, end] = by_name_.equal_range(Key(tenant, name));
    for (auto entry = begin; entry != end; ++entry) {
      Call& call = calls_.find(entry->second)->second;
      if (std::exchange(call.cancelled, true)) continue;
      cancelled.push_back(entry->second);
    }
  }
  return cancelled;
}

bool CallRegistry::WasCancelled(RequestId id) const {
  MutexLock lock(mutex_);
  const auto call = calls_.find(id);
  return call != calls_.end() && call->second.cancelled;
}

size_t CallRegistry::size() const {
  MutexLock lock(mutex_);
  return calls_.size();
}

}  // namespace renga
