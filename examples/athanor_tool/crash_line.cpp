#include "examples/athanor_tool/crash_line.h"

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdio>

#include <sys/resource.h>
#include <sys/time.h>
#include <unistd.h>

#include "tensor/base/printable.h"
#include "trainer/run_main.h"

namespace athanor::tool {
namespace {

constexpr std::array kCrashes{SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGPROF};
constexpr rlim_t kMoreMemory = rlim_t{4} << 30;
constexpr time_t kPatience_s = 120;

std::array<char, 4096> crash_text{};
std::size_t crash_text_bytes = 0;
std::array<char, 1 << 16> signal_stack{};
rlimit data_limit_before{};

void say_and_end(int) {
  (void)!::write(STDERR_FILENO, crash_text.data(), crash_text_bytes);
  ::_exit(kExitBadInput);
}

/// Bytes that RLIMIT_DATA counts, or 0 if unknown. Sanitizers reserve terabytes of them.
rlim_t data_bytes() {
  unsigned long long pages = 0;
  if (std::FILE* const file = std::fopen("/proc/self/statm", "r")) {
    if (std::fscanf(file, "%*u %*u %*u %*u %*u %llu", &pages) != 1) pages = 0;
    std::fclose(file);
  }
  return static_cast<rlim_t>(pages) * static_cast<rlim_t>(::sysconf(_SC_PAGESIZE));
}

void limit_cpu_time(time_t seconds) {
  const itimerval timer{{0, 0}, {seconds, 0}};
  ::setitimer(ITIMER_PROF, &timer, nullptr);
}

}  // namespace

CrashLine::CrashLine(const std::string& line) {
  const std::string whole = "athanor: " + printable(line).substr(0, crash_text.size() - 16) + '\n';
  crash_text_bytes = whole.size();
  std::copy(whole.begin(), whole.end(), crash_text.begin());
  const stack_t stack{signal_stack.data(), 0, signal_stack.size()};  // one that overflowed is of no use
  ::sigaltstack(&stack, nullptr);
  struct sigaction action {};
  action.sa_handler = &say_and_end;
  action.sa_flags = SA_ONSTACK;
  for (const int signal : kCrashes) ::sigaction(signal, &action, nullptr);
  ::getrlimit(RLIMIT_DATA, &data_limit_before);
  if (const rlim_t bytes = data_bytes(); bytes > 0) {
    const rlimit limited{std::min(data_limit_before.rlim_cur, bytes + kMoreMemory),
                         data_limit_before.rlim_max};
    ::setrlimit(RLIMIT_DATA, &limited);
  }
  alive();
}

CrashLine::~CrashLine() {
  limit_cpu_time(0);
  ::setrlimit(RLIMIT_DATA, &data_limit_before);
  for (const int signal : kCrashes) std::signal(signal, SIG_DFL);
}

void CrashLine::alive() {
  limit_cpu_time(kPatience_s);
}

}  // namespace athanor::tool
