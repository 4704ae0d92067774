#include "dist/launch/detail/signal_stack.h"

#include <csignal>
#include <cstddef>
#include <memory>

#include <unistd.h>

namespace athanor::dist {
namespace {

/// Many times the need of FlightRecord::write() and its callees.
constexpr std::size_t kForHandlers = 64 << 10;

class SignalStack {
 public:
  SignalStack() {
    stack_t before{};
    if (sigaltstack(nullptr, &before) != 0 || !(before.ss_flags & SS_DISABLE)) return;
    // Plus the registers saved there by the system: 12 KiB on a CPU with AMX tiles.
    const long registers = sysconf(_SC_MINSIGSTKSZ);
    stack_t mine{};
    mine.ss_size = kForHandlers + (registers > 0 ? static_cast<std::size_t>(registers) : 0);
    memory_ = std::make_unique_for_overwrite<std::byte[]>(mine.ss_size);
    mine.ss_sp = memory_.get();
    sigaltstack(&mine, nullptr);
  }
  ~SignalStack() {
    stack_t now{}, none{};
    none.ss_flags = SS_DISABLE;
    if (memory_ && sigaltstack(nullptr, &now) == 0 && now.ss_sp == memory_.get()) sigaltstack(&none, nullptr);
  }
  SignalStack(const SignalStack&) = delete;
  SignalStack& operator=(const SignalStack&) = delete;

 private:
  std::unique_ptr<std::byte[]> memory_;
};

}  // namespace

void have_signal_stack() {
  thread_local const SignalStack stack;
}

}  // namespace athanor::dist
