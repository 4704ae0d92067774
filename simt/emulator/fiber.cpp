#include "simt/emulator/fiber.h"

#include <new>

#include <sys/mman.h>
#include <unistd.h>

#if !defined(__x86_64__) && !defined(SIMT_UCONTEXT)
#define SIMT_UCONTEXT
#endif
#if defined(SIMT_UCONTEXT)
#include <ucontext.h>
#endif
#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

// A switch pushes the registers that a called function must preserve, swaps stack pointers, and pops them on
// the other side: 20 ns with all that surrounds it. ucontext, which asks the system for the signal mask each
// way, takes ten times as long; it serves processors without the twenty lines of assembly.

namespace simt {
namespace {
Fiber* left = nullptr;     // by the latest switch
Fiber* arrived = nullptr;  // at
}  // namespace

#if !defined(SIMT_UCONTEXT)
// rdi: where to save our stack pointer; rsi: theirs.
extern "C" void simt_switch(void** save, void* load);
asm(R"(
.text
.globl simt_switch
.hidden simt_switch
.type simt_switch,@function
simt_switch:
  .cfi_startproc
  endbr64
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
  .cfi_endproc
.size simt_switch,.-simt_switch
)");
#endif

StackRegion::StackRegion(std::size_t count, std::size_t stack_bytes)
    : stack_bytes_(stack_bytes), page_(static_cast<std::size_t>(sysconf(_SC_PAGESIZE))) {
  const std::size_t bytes = count * (stack_bytes + page_);
  void* memory = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  begin_ = next_ = static_cast<char*>(memory);
  end_ = begin_ + bytes;
}

char* StackRegion::take() {
  char* const stack = next_ + page_;
  if (stack + stack_bytes_ > end_) throw std::bad_alloc();
  if (mprotect(stack, stack_bytes_, PROT_READ | PROT_WRITE) != 0) throw std::bad_alloc();
  next_ = stack + stack_bytes_;
  return stack;
}

// The first thing after every switch, on the side it goes to.
void Fiber::arrive() {
#if defined(__SANITIZE_ADDRESS__)
  const void* bottom;
  std::size_t bytes;
  __sanitizer_finish_switch_fiber(arrived->fake_stack_, &bottom, &bytes);
  if (left->stack_ == nullptr) {  // a host thread's own stack, which only AddressSanitizer knows
    left->known_bottom_ = bottom;
    left->known_bytes_ = bytes;
  }
#endif
}

void Fiber::enter() {
  arrive();
  arrived->entry_();
  __builtin_trap();
}

void Fiber::restart(Entry entry) {
  entry_ = entry;
#if defined(__SANITIZE_ADDRESS__)
  __asan_unpoison_memory_region(stack_, stack_bytes_);  // frames that never returned left red zones
  fake_stack_ = nullptr;
  known_bottom_ = stack_;
  known_bytes_ = stack_bytes_;
#endif
#if defined(SIMT_UCONTEXT)
  auto* context = static_cast<ucontext_t*>(context_);
  if (!context) context_ = context = new ucontext_t;
  getcontext(context);
  context->uc_stack.ss_sp = stack_;
  context->uc_stack.ss_size = stack_bytes_;
  context->uc_link = nullptr;
  makecontext(context, &Fiber::enter, 0);
#else
  void** top = reinterpret_cast<void**>(stack_ + stack_bytes_);
  *--top = nullptr;  // enter()'s return address: ends every backtrace, and aligns the stack as a call does
  *--top = reinterpret_cast<void*>(&Fiber::enter);
  for (int saved = 0; saved < 6; ++saved) *--top = nullptr;
  context_ = top;
#endif
}

void Fiber::switch_to(Fiber& from, Fiber& to) {
  left = &from;
  arrived = &to;
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(&from.fake_stack_, to.known_bottom_, to.known_bytes_);
#endif
#if defined(SIMT_UCONTEXT)
  if (!from.context_) from.context_ = new ucontext_t;
  swapcontext(static_cast<ucontext_t*>(from.context_), static_cast<ucontext_t*>(to.context_));
#else
  simt_switch(&from.context_, to.context_);
#endif
  arrive();
}

}  // namespace simt
