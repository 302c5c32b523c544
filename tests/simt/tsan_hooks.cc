// The hooks that -fsanitize=thread puts before every plain load and store of a kernel,
// led to the emulator. This takes the place of the sanitizer's library, which must not be
// linked.

#include <cstdint>

#include "tests/simt/machine.h"

namespace renga::test {
namespace {

inline void Note(const void* pc, const void* at, int bytes, Access access) {
  SimtMachine* machine = SimtMachine::Running();
  if (machine == nullptr || !machine->in_fiber()) return;
  machine->Touches({nullptr, 0, pc}, at, bytes, access, Space::kAny);
}

}  // namespace
}  // namespace renga::test

using renga::test::Access;
using renga::test::Note;

extern "C" {

#define RENGA_HOOK(name, bytes, access)                           \
  void __tsan_##name(void* at);                                   \
  void __tsan_##name(void* at) {                                  \
    Note(__builtin_return_address(0), at, bytes, Access::access); \
  }

RENGA_HOOK(read1, 1, kRead)
RENGA_HOOK(read2, 2, kRead)
RENGA_HOOK(read4, 4, kRead)
RENGA_HOOK(read8, 8, kRead)
RENGA_HOOK(read16, 16, kRead)
RENGA_HOOK(write1, 1, kWrite)
RENGA_HOOK(write2, 2, kWrite)
RENGA_HOOK(write4, 4, kWrite)
RENGA_HOOK(write8, 8, kWrite)
RENGA_HOOK(write16, 16, kWrite)
RENGA_HOOK(unaligned_read2, 2, kRead)
RENGA_HOOK(unaligned_read4, 4, kRead)
RENGA_HOOK(unaligned_read8, 8, kRead)
RENGA_HOOK(unaligned_read16, 16, kRead)
RENGA_HOOK(unaligned_write2, 2, kWrite)
RENGA_HOOK(unaligned_write4, 4, kWrite)
RENGA_HOOK(unaligned_write8, 8, kWrite)
RENGA_HOOK(unaligned_write16, 16, kWrite)

void __tsan_read_range(void* at, unsigned long bytes);
void __tsan_read_range(void* at, unsigned long bytes) {
  Note(__builtin_return_address(0), at, static_cast<int>(bytes), Access::kRead);
}
void __tsan_write_range(void* at, unsigned long bytes);
void __tsan_write_range(void* at, unsigned long bytes) {
  Note(__builtin_return_address(0), at, static_cast<int>(bytes), Access::kWrite);
}

void __tsan_init();
void __tsan_init() {}
void __tsan_func_entry(void* pc);
void __tsan_func_entry(void*) {}
void __tsan_func_exit();
void __tsan_func_exit() {}

// Guards of constants inside functions.
uint8_t __tsan_atomic8_load(const volatile uint8_t* at, int order);
uint8_t __tsan_atomic8_load(const volatile uint8_t* at, int) {
  return __atomic_load_n(at, __ATOMIC_ACQUIRE);
}

}  // extern "C"
