#include "data/formats/import/detail/child_process.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <utility>

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tensor/error.h"
#include "tensor/printable.h"

namespace athanor::detail {
namespace {

constexpr std::size_t kMessageBytes = 4096;

/// Calls step(the rest of `bytes`), which returns as system calls do, until all are transferred. Returns the
/// last call's result: <= 0 if it failed.
template <class Byte, class Step> ssize_t transfer(std::span<Byte> bytes, const Step& step) {
  ssize_t count = 1;
  while (!bytes.empty()) {
    count = step(bytes);
    if (count < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (count <= 0) break;
    bytes = bytes.subspan(static_cast<std::size_t>(count));
  }
  return count;
}

// In the child ---------------------------------------------------------------------------------------------

volatile std::sig_atomic_t owner_pid = 0;

/// Handles the signal sent when the forking thread ends; other threads of its process may still run.
void exit_if_orphaned(int) {
  if (::getppid() != static_cast<pid_t>(owner_pid)) ::_exit(0);
}

/// Ignores signals to the terminal's group: the owner handles them, then ends the child. SIGXFSZ is ignored
/// so that too long a write returns an error. Other signals get their default action.
void reset_signals() {
  struct sigaction action {};
  for (int signal = 1; signal < NSIG; ++signal) {
    const bool ignored =
        signal == SIGINT || signal == SIGTERM || signal == SIGHUP || signal == SIGQUIT || signal == SIGXFSZ;
    action.sa_handler = ignored ? SIG_IGN : SIG_DFL;
    ::sigaction(signal, &action, nullptr);
  }
  action.sa_handler = &exit_if_orphaned;
  ::sigaction(SIGUSR1, &action, nullptr);
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
}

/// Closes all but the socket, and returns its new number; the library's messages go to /dev/null.
int close_all_but(int socket) {
  constexpr int kKept = 3;
  if (socket != kKept) ::dup2(socket, kKept);
  const int nowhere = ::open("/dev/null", O_RDWR);
  for (const int file : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) ::dup2(nowhere, file);
  ::closefrom(kKept + 1);
  return kKept;
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

/// Makes the child the OOM killer's first choice, limits its memory to kMoreMemory more than now, and
/// prevents core dumps of its owner's memory.
void limit_resources(ChildProcess::Files files) {
  if (const int file = ::open("/proc/self/oom_score_adj", O_WRONLY); file >= 0) {
    (void)!::write(file, "1000", 4);
    ::close(file);
  }
  const rlimit none{0, 0};
  ::setrlimit(RLIMIT_CORE, &none);
  if (files == ChildProcess::Files::none) ::setrlimit(RLIMIT_FSIZE, &none);
  if (const rlim_t bytes = data_bytes(); bytes > 0) {
    rlimit data{};
    ::getrlimit(RLIMIT_DATA, &data);
    data.rlim_cur = data.rlim_max = std::min(data.rlim_max, bytes + ChildProcess::kMoreMemory);
    ::setrlimit(RLIMIT_DATA, &data);
  }
  ::prctl(PR_SET_DUMPABLE, 0);
}

[[noreturn]] void run_child(pid_t parent, int socket, std::span<char> message, const ChildProcess::Work& work,
                            ChildProcess::Files files) {
  owner_pid = static_cast<std::sig_atomic_t>(parent);
  reset_signals();
  ::prctl(PR_SET_PDEATHSIG, SIGUSR1);
  exit_if_orphaned(0);  // the parent may have ended before prctl()
  ChildProcess::Owner owner(close_all_but(socket));
  limit_resources(files);
  try {
    work(owner);
  } catch (const std::exception& error) {
    std::strncpy(message.data(), error.what(), message.size() - 1);
  }
  ::_exit(0);  // without destructors or exit handlers of a library that failed
}

// In the parent --------------------------------------------------------------------------------------------

std::string how_it_ended(int status) {
  if (!WIFSIGNALED(status)) return fmt::format("exited with status {}", WEXITSTATUS(status));
  const int signal = WTERMSIG(status);
  const char* const why = signal == SIGSEGV   ? "SIGSEGV: it accessed invalid memory"
                          : signal == SIGBUS  ? "SIGBUS: the file was truncated, or the memory does not exist"
                          : signal == SIGABRT ? "SIGABRT: it aborted"
                          : signal == SIGKILL ? "SIGKILL: it was killed, or memory ran out"
                                              : ::strsignal(signal);
  return fmt::format("was terminated by signal {} ({})", signal, why);
}

}  // namespace

bool ChildProcess::Owner::read(std::span<std::byte> to) {
  const ssize_t got = transfer(to, [&](auto left) { return ::recv(socket_, left.data(), left.size(), 0); });
  if (got < 0) ::_exit(0);
  return got > 0;
}

void ChildProcess::Owner::write(std::span<const std::byte> bytes) {
  const auto send = [&](auto left) { return ::send(socket_, left.data(), left.size(), MSG_NOSIGNAL); };
  if (transfer(bytes, send) < 0) ::_exit(0);
}

ChildProcess::ChildProcess(const Work& work, double patience_s, Files files) : patience_s_(patience_s) {
  ATH_CHECK(patience_s > 0, "child process: patience must be > 0 s, but got {}", patience_s);
  const auto check = [&](bool good, const char* call) {
    if (good) return;
    const int error = errno;
    release();
    detail::fail<IoError>("cannot start a child process: {}: {}", call, std::strerror(error));
  };
  void* const memory =
      ::mmap(nullptr, kMessageBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  check(memory != MAP_FAILED, "mmap");
  message_ = {static_cast<char*>(memory), kMessageBytes};
  std::array<int, 2> ends{-1, -1};
  check(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) == 0, "socketpair");
  socket_ = ends[0];
  const pid_t parent = ::getpid();
  pid_ = ::fork();
  if (pid_ == 0) run_child(parent, ends[1], message_, work, files);
  const int error = errno;
  ::close(ends[1]);
  errno = error;
  check(pid_ > 0, "fork");
  ::madvise(memory, kMessageBytes, MADV_DONTFORK);  // other children do not need it
}

ChildProcess::~ChildProcess() {
  if (pid_ > 0) {
    ::kill(pid_, SIGKILL);  // its result is no longer needed
    (void)reap();
  }
  release();
}

void ChildProcess::release() {
  if (socket_ >= 0) ::close(socket_);
  if (!message_.empty()) ::munmap(message_.data(), message_.size());
}

// Counts polls instead of reading the clock: while this process is stopped, so is the child.
void ChildProcess::wait_for(short events) {
  constexpr double kNap_s = 0.1;
  if (pid_ < 0) fail(0);
  for (double left_s = patience_s_; left_s > 0;) {
    pollfd there{socket_, events, 0};
    const auto nap_ms = static_cast<int>(std::max(1.0, std::min(left_s, kNap_s) * 1e3));
    const int count = ::poll(&there, 1, nap_ms);
    if (count > 0) return;
    if (count == 0) left_s -= static_cast<double>(nap_ms) * 1e-3;
  }
  ::kill(pid_, SIGKILL);
  (void)reap();
  throw ChildFailure(fmt::format("made no progress for {} s and was killed", patience_s_), true);
}

void ChildProcess::read(std::span<std::byte> to) {
  const auto receive = [&](auto left) {
    wait_for(POLLIN);
    return ::recv(socket_, left.data(), left.size(), MSG_DONTWAIT);
  };
  if (transfer(to, receive) <= 0) fail(reap());
}

void ChildProcess::write(std::span<const std::byte> bytes) {
  const auto send = [&](auto left) {
    wait_for(POLLOUT);
    return ::send(socket_, left.data(), left.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  };
  if (transfer(bytes, send) <= 0) fail(reap());
}

void ChildProcess::finish() {
  ::shutdown(socket_, SHUT_WR);
  std::byte more;
  for (ssize_t count = -1; pid_ > 0 && count < 0;) {
    wait_for(POLLIN);
    count = ::recv(socket_, &more, 1, MSG_DONTWAIT);
    if (count < 0 && errno != EINTR && errno != EAGAIN) break;
  }
  if (const int status = pid_ > 0 ? reap() : -1; status != 0 || message_[0] != '\0') fail(status);
}

void ChildProcess::fail(int status) {
  if (message_[0] == '\0') throw ChildFailure(how_it_ended(status), true);
  // Makes one printable line of whatever the child wrote.
  throw ChildFailure(printable({message_.data(), ::strnlen(message_.data(), message_.size())}), false);
}

/// Waits up to a second for the child, which closed its socket or was killed; then kills it.
int ChildProcess::reap() {
  constexpr int kLooks = 1000;
  const pid_t pid = std::exchange(pid_, -1);
  int status = 0;
  for (int look = 0; ::waitpid(pid, &status, WNOHANG) == 0; ++look) {
    if (look == kLooks) ::kill(pid, SIGKILL);
    ::usleep(1000);
  }
  return status;
}

}  // namespace athanor::detail
