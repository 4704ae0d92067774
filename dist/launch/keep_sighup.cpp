#include <csignal>

#include <sys/syscall.h>
#include <unistd.h>

// UCX, which comes with Open MPI 5, takes SIGHUP for itself while a program is loaded (UCX_DEBUG_SIGNO), even
// where nohup has had it ignored: the run would end with the terminal. Here SIGHUP becomes again what it was
// when the program was started. Programs that link athanor::mpi have this; a shared library cannot
// (cmake/library.cmake).

namespace {

/// A signal as Linux on x86-64 and on 64-bit ARM keeps it.
struct KernelAction {
  void (*handler)(int);
  unsigned long flags;
  void (*restorer)();
  unsigned long mask;
};

bool ignored = false;

// Runs before any library is started, the sanitizers' too: it may only ask the kernel.
[[gnu::no_sanitize("address", "thread", "undefined")]] void look(int, char**, char**) {
  KernelAction action{};
  ::syscall(SYS_rt_sigaction, SIGHUP, nullptr, &action, sizeof(action.mask));
  ignored = action.handler == SIG_IGN;
}
[[gnu::section(".preinit_array"), gnu::used]] void (*const before_libraries)(int, char**, char**) = look;

}  // namespace

// Behind the libraries, before the program's own objects and main().
extern "C" [[gnu::constructor(101)]] void athanor_keep_sighup() {
  std::signal(SIGHUP, ignored ? SIG_IGN : SIG_DFL);
}
