#include "tests/models/allocation_meter.h"

#include <cstdlib>
#include <new>

// A sanitizer has its own operator new, which cannot be replaced; it calls a hook
// instead.
#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define RENGA_COUNT_BY_HOOK
#endif
#endif

namespace renga::test {
namespace {

// Plain integers and builtins: the hook runs before any constructor, and must not be
// instrumented itself.
int64_t g_count = 0;
size_t g_largest = 0;

#ifdef RENGA_COUNT_BY_HOOK
__attribute__((disable_sanitizer_instrumentation))
#endif
void Count(size_t bytes) {
  __atomic_fetch_add(&g_count, 1, __ATOMIC_RELAXED);
  size_t largest = __atomic_load_n(&g_largest, __ATOMIC_RELAXED);
  while (bytes > largest &&
         !__atomic_compare_exchange_n(&g_largest, &largest, bytes, true, __ATOMIC_RELAXED,
                                      __ATOMIC_RELAXED)) {
  }
}

}  // namespace

int64_t AllocationCount() { return __atomic_load_n(&g_count, __ATOMIC_RELAXED); }
size_t LargestAllocation() { return __atomic_load_n(&g_largest, __ATOMIC_RELAXED); }
void ResetLargestAllocation() { __atomic_store_n(&g_largest, 0, __ATOMIC_RELAXED); }

}  // namespace renga::test

#ifdef RENGA_COUNT_BY_HOOK
extern "C" {
__attribute__((disable_sanitizer_instrumentation)) void __sanitizer_malloc_hook(
    const volatile void*, size_t bytes) {
  renga::test::Count(bytes);
}
void __sanitizer_free_hook(const volatile void*) {}
}
#else
// operator new[] and the others that are not replaced end here.
void* operator new(size_t bytes) {
  renga::test::Count(bytes);
  if (void* memory = std::malloc(bytes != 0 ? bytes : 1); memory != nullptr)
    return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
#endif
