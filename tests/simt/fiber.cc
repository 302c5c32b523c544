#include "tests/simt/fiber.h"

#include <sys/mman.h>

#include <cstdlib>

#include "base/check.h"

#if defined(__SANITIZE_ADDRESS__)
#define RENGA_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define RENGA_ASAN 1
#endif
#endif

#if defined(RENGA_ASAN)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

namespace renga::test {
namespace {

using boost::context::detail::jump_fcontext;
using boost::context::detail::make_fcontext;
using boost::context::detail::transfer_t;

constexpr size_t kGuardBytes = 4096;
#if defined(RENGA_ASAN)
constexpr size_t kStackBytes = 256 * 1024;  // Its frames are larger.
#else
constexpr size_t kStackBytes = 64 * 1024;
#endif
// Stacks begin at different sets of the cache, or 32 lanes would fight for a few lines.
constexpr size_t kColours = 32;
constexpr size_t kColourBytes = 192;

void BeginSwitch([[maybe_unused]] void** fake_stack, [[maybe_unused]] const void* low,
                 [[maybe_unused]] size_t bytes) {
#if defined(RENGA_ASAN)
  __sanitizer_start_switch_fiber(fake_stack, low, bytes);
#endif
}

void EndSwitch([[maybe_unused]] void* fake_stack, [[maybe_unused]] const void** low,
               [[maybe_unused]] size_t* bytes) {
#if defined(RENGA_ASAN)
  __sanitizer_finish_switch_fiber(fake_stack, low, bytes);
#endif
}

}  // namespace

void Fiber::Start(const FiberStack& stack, Body body, void* argument) {
  stack_ = stack;
  body_ = body;
  argument_ = argument;
#if defined(RENGA_ASAN)
  __asan_unpoison_memory_region(stack.low, stack.bytes);
#endif
  own_ = make_fcontext(stack.low + stack.bytes, stack.bytes, &Fiber::Enter);
}

void Fiber::Resume() {
  void* fake_stack = nullptr;
  BeginSwitch(&fake_stack, stack_.low, stack_.bytes);
  own_ = jump_fcontext(own_, this).fctx;
  EndSwitch(fake_stack, nullptr, nullptr);
}

void Fiber::Suspend() {
  BeginSwitch(&own_fake_stack_, resumer_low_, resumer_bytes_);
  resumer_ = jump_fcontext(resumer_, nullptr).fctx;
  EndSwitch(own_fake_stack_, &resumer_low_, &resumer_bytes_);
}

void Fiber::Abandon() {
  BeginSwitch(nullptr, resumer_low_, resumer_bytes_);
  jump_fcontext(resumer_, nullptr);
  std::abort();  // Nobody resumes an abandoned fiber.
}

void Fiber::Enter(transfer_t transfer) {
  Fiber* fiber = static_cast<Fiber*>(transfer.data);
  EndSwitch(nullptr, &fiber->resumer_low_, &fiber->resumer_bytes_);
  fiber->resumer_ = transfer.fctx;
  fiber->body_(fiber->argument_);
  std::abort();  // A body does not return.
}

FiberStacks::~FiberStacks() {
  for (char* mapped : mapped_) munmap(mapped, kGuardBytes + kStackBytes);
}

FiberStack FiberStacks::At(int index) {
  while (static_cast<int>(mapped_.size()) <= index) {
    void* mapped = mmap(nullptr, kGuardBytes + kStackBytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    RENGA_CHECK(mapped != MAP_FAILED);
    RENGA_CHECK(mprotect(mapped, kGuardBytes, PROT_NONE) == 0);
    mapped_.push_back(static_cast<char*>(mapped));
  }
  const size_t i = static_cast<size_t>(index);
  return {mapped_[i] + kGuardBytes, kStackBytes - i % kColours * kColourBytes};
}

}  // namespace renga::test
