#include "engine/prefix_cache.h"

#include "renga/backend.h"

namespace renga {

struct PrefixCache::Impl {};

int64_t PrefixCache::Match::tokens() const {
  return static_cast<int64_t>(pages.size()) * kPageTokens + head_tokens;
}

PrefixCache::PrefixCache(KvPool& /*pool*/) : impl_(std::make_unique<Impl>()) {}
PrefixCache::~PrefixCache() = default;

PrefixCache::Length PrefixCache::Find(std::string_view /*salt*/,
                                      std::span<const TokenId> /*tokens*/,
                                      int64_t /*limit*/) const {
  return {};
}

PrefixCache::Match PrefixCache::Take(std::string_view /*salt*/,
                                     std::span<const TokenId> /*tokens*/,
                                     int64_t /*limit*/) {
  return {};
}

void PrefixCache::Insert(std::string_view /*salt*/, std::span<const TokenId> /*tokens*/,
                         std::span<PageRef> /*pages*/, size_t /*first_page*/) {}

bool PrefixCache::Evict() { return false; }
int64_t PrefixCache::Flush() { return 0; }
int64_t PrefixCache::pages() const { return 0; }
int64_t PrefixCache::evictable() const { return 0; }
int64_t PrefixCache::bytes() const { return 0; }

}  // namespace renga
