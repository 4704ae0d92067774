#include <csignal>

#include <sys/syscall.h>
#include <unistd.h>

// UCX, part of Open MPI 5, installs a SIGHUP handler at load time (UCX_DEBUG_SIGNO), even if nohup has set it
// to be ignored: the run would then end with the terminal. This restores SIGHUP's disposition from program
// start. Programs that link athanor::mpi include this file; a shared library cannot (dist/CMakeLists.txt).

namespace {

/// A signal action in the layout of the Linux kernel on x86-64 and on 64-bit ARM.
struct KernelAction {
  void (*handler)(int);
  unsigned long flags;
  void (*restorer)();
  unsigned long mask;
};

bool ignored = false;

// Runs before any library is initialised, sanitizers included: only direct system calls are allowed.
[[gnu::no_sanitize("address", "thread", "undefined")]] void look(int, char**, char**) {
  KernelAction action{};
  ::syscall(SYS_rt_sigaction, SIGHUP, nullptr, &action, sizeof(action.mask));
  ignored = action.handler == SIG_IGN;
}
[[gnu::section(".preinit_array"), gnu::used]] void (*const before_libraries)(int, char**, char**) = look;

}  // namespace

// Runs after the libraries' constructors, before the program's own objects and main().
extern "C" [[gnu::constructor(101)]] void athanor_keep_sighup() {
  std::signal(SIGHUP, ignored ? SIG_IGN : SIG_DFL);
}
