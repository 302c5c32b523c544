// Fibers: one stack each, used again and again, and the switch between a fiber and
// whoever resumed it. Boost.Context's bare switch, since a fiber that failed must be
// abandoned: an exception cannot pass through the compiler's hooks.
//
// Thread safety: none; a fiber stays in the thread that resumed it first.

#pragma once

#include <boost/context/detail/fcontext.hpp>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace renga::test {

struct FiberStack {
  char* low = nullptr;
  size_t bytes = 0;
  bool Holds(const void* at) const {
    return static_cast<size_t>(static_cast<const char*>(at) - low) < bytes;
  }
};

class Fiber {
 public:
  using Body = void (*)(void* argument);

  // The next Resume begins with body(argument), which must not return. What was on the
  // stack is forgotten, without destructors.
  void Start(const FiberStack& stack, Body body, void* argument);
  // Runs the fiber until it calls Suspend or Abandon.
  void Resume();
  // By the fiber itself: goes on behind Resume; comes back at the next Resume.
  void Suspend();
  // By the fiber itself: it will not come back.
  [[noreturn]] void Abandon();

 private:
  static void Enter(boost::context::detail::transfer_t transfer);

  FiberStack stack_;
  Body body_ = nullptr;
  void* argument_ = nullptr;
  boost::context::detail::fcontext_t own_ = nullptr;
  boost::context::detail::fcontext_t resumer_ = nullptr;
  // What AddressSanitizer wants to know of both stacks.
  void* own_fake_stack_ = nullptr;
  const void* resumer_low_ = nullptr;
  size_t resumer_bytes_ = 0;
};

// Stacks of this thread, made once. Each has a page below it that ends the program when a
// kernel's locals outgrow it.
class FiberStacks {
 public:
  FiberStacks() = default;
  ~FiberStacks();
  FiberStacks(const FiberStacks&) = delete;
  FiberStacks& operator=(const FiberStacks&) = delete;

  FiberStack At(int index);

 private:
  std::vector<char*> mapped_;
};

}  // namespace renga::test
