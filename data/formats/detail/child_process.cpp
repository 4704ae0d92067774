#include "data/formats/detail/child_process.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <thread>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tensor/error.h"

namespace athanor::detail {
namespace {

using Buffer = std::array<char, ChildProcess::kMostBytes + 1>;  // a byte before the text: how it ended
constexpr char kAnswered = 'a', kRefused = 'r';

// In the child ---------------------------------------------------------------------------------------------

volatile std::sig_atomic_t owner = 0;  // process id

/// Comes whenever the thread that forked has ended, though the others of its process may go on.
void look_for_owner(int) {
  if (::getppid() != static_cast<pid_t>(owner)) ::_exit(0);
}

/// Signals for the terminal's whole group are the owner's business: it ends in its own time, and takes the
/// child with it. Everything else kills.
void reset_signals() {
  struct sigaction action {};
  for (int signal = 1; signal < NSIG; ++signal) {
    const bool ignored = signal == SIGINT || signal == SIGTERM || signal == SIGHUP || signal == SIGQUIT;
    action.sa_handler = ignored ? SIG_IGN : SIG_DFL;
    ::sigaction(signal, &action, nullptr);
  }
  action.sa_handler = &look_for_owner;
  ::sigaction(SIGUSR1, &action, nullptr);
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
}

void close_range(unsigned first, unsigned last) {
  if (first > last || ::syscall(SYS_close_range, first, last, 0) == 0) return;
  const auto most = static_cast<unsigned>(std::max(::sysconf(_SC_OPEN_MAX), 0L));
  for (unsigned file = first; file <= std::min(last, most); ++file) ::close(static_cast<int>(file));
}

/// Nothing is left but the socket; a library's complaints go nowhere.
void close_all_but(int socket) {
  const int nowhere = ::open("/dev/null", O_RDWR);
  for (const int file : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (file != socket) ::dup2(nowhere, file);
  }
  const auto kept = static_cast<unsigned>(socket);
  if (kept > 3) close_range(3, kept - 1);
  close_range(std::max(kept + 1, 3U), ~0U);
}

/// Bytes that RLIMIT_DATA counts, or 0 where that is not known. Sanitizers have terabytes of them.
rlim_t data_bytes() {
  unsigned long long pages = 0;
  if (std::FILE* const file = std::fopen("/proc/self/statm", "r")) {
    if (std::fscanf(file, "%*u %*u %*u %*u %*u %llu", &pages) != 1) pages = 0;
    std::fclose(file);
  }
  return static_cast<rlim_t>(pages) * static_cast<rlim_t>(::sysconf(_SC_PAGESIZE));
}

/// Where memory runs out the child goes first, it gets kMoreMemory and not all there is, and it leaves
/// nothing on the disk, least of all an image of its owner's memory.
void be_expendable() {
  if (const int file = ::open("/proc/self/oom_score_adj", O_WRONLY); file >= 0) {
    (void)!::write(file, "1000", 4);
    ::close(file);
  }
  const rlimit none{0, 0};
  ::setrlimit(RLIMIT_CORE, &none);
  ::setrlimit(RLIMIT_FSIZE, &none);
  if (const rlim_t bytes = data_bytes(); bytes > 0) {
    rlimit data{};
    ::getrlimit(RLIMIT_DATA, &data);
    data.rlim_cur = data.rlim_max = std::min(data.rlim_max, bytes + ChildProcess::kMoreMemory);
    ::setrlimit(RLIMIT_DATA, &data);
  }
  ::prctl(PR_SET_DUMPABLE, 0);
}

[[noreturn]] void serve_until_closed(int socket, std::span<std::byte> window,
                                     const ChildProcess::Serve& serve) {
  Buffer buffer;
  for (;;) {
    const ssize_t count = ::recv(socket, buffer.data(), buffer.size(), 0);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) ::_exit(0);
    std::string text;
    char how = kAnswered;
    try {
      text = serve({buffer.data(), static_cast<std::size_t>(count)}, window);
    } catch (const std::exception& error) {
      how = kRefused;
      text = error.what();
    }
    text.insert(0, 1, how);
    text.resize(std::min(text.size(), buffer.size()));
    if (::send(socket, text.data(), text.size(), MSG_NOSIGNAL) < 0) ::_exit(0);
  }
}

[[noreturn]] void live(pid_t parent, int socket, std::span<std::byte> window,
                       const ChildProcess::Serve& serve) {
  owner = static_cast<std::sig_atomic_t>(parent);
  reset_signals();
  ::prctl(PR_SET_PDEATHSIG, SIGUSR1);
  look_for_owner(0);  // it may have ended before it could be told
  close_all_but(socket);
  be_expendable();
  serve_until_closed(socket, window, serve);
}

// In the parent --------------------------------------------------------------------------------------------

std::string name_of_signal(int signal) {
  switch (signal) {
    case SIGSEGV: return "SIGSEGV: it read or wrote where nothing is";
    case SIGBUS: return "SIGBUS: the file was cut, or the memory is not there";
    case SIGABRT: return "SIGABRT: it gave up";
    case SIGFPE: return "SIGFPE: a division by zero";
    case SIGILL: return "SIGILL: an instruction that is none";
    case SIGKILL: return "SIGKILL: somebody ended it, or memory ran out";
    default: return "another program's, or its own";
  }
}

}  // namespace

ChildProcess::ChildProcess(std::size_t window_bytes, Serve serve) {
  const auto fail = [](const char* what) {
    detail::fail<IoError>("a process to read in cannot be had: {}: {}", what, std::strerror(errno));
  };
  void* const memory = ::mmap(nullptr, window_bytes, PROT_READ | PROT_WRITE,
                              MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) fail("mmap");
  window_ = {static_cast<std::byte*>(memory), window_bytes};
  std::array<int, 2> ends{-1, -1};
  const pid_t parent = ::getpid();
  const bool connected = ::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) == 0;
  if (connected) pid_ = ::fork();
  if (pid_ == 0) live(parent, ends[1], window_, serve);
  const int error = errno;
  if (connected) ::close(ends[1]);
  if (pid_ < 0) {
    if (connected) ::close(ends[0]);
    ::munmap(memory, window_bytes);
    errno = error;
    fail(connected ? "fork" : "socketpair");
  }
  socket_ = ends[0];
  ::madvise(memory, window_bytes, MADV_DONTFORK);  // the children of others have no business in it
}

ChildProcess::~ChildProcess() {
  if (pid_ > 0) {
    ::kill(pid_, SIGKILL);  // it has nothing to finish
    while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
    }
  }
  ::close(socket_);
  ::munmap(window_.data(), window_.size());
}

ChildProcess::Answer ChildProcess::ask(std::string_view request, double patience_s) {
  ATH_CHECK(!request.empty() && request.size() <= kMostBytes && patience_s > 0,
            "child process: a request must have 1 to {} bytes and patience, but got {} bytes and {} s",
            kMostBytes, request.size(), patience_s);
  if (!lost_.empty()) return {Outcome::lost, lost_};
  if (::send(socket_, request.data(), request.size(), MSG_NOSIGNAL) < 0) return lose(reap());
  // Naps are counted, not the clock: while this process is stopped, so is the child.
  constexpr double kNap_s = 0.1;
  for (double left_s = patience_s;;) {
    pollfd there{socket_, POLLIN, 0};
    const auto nap_ms = static_cast<int>(std::max(1.0, std::min(left_s, kNap_s) * 1e3));
    const int count = ::poll(&there, 1, nap_ms);
    if (count > 0) break;
    if (count < 0 && errno == EINTR) continue;
    left_s -= static_cast<double>(nap_ms) * 1e-3;
    if (left_s <= 0) {
      ::kill(pid_, SIGKILL);
      (void)reap();
      return lose(fmt::format("gave no answer for {} s, and was ended", patience_s));
    }
  }
  Buffer buffer;
  const ssize_t count = ::recv(socket_, buffer.data(), buffer.size(), MSG_TRUNC);
  if (count <= 0) return lose(reap());
  const char how = buffer[0];
  if (count > std::ssize(buffer) || (how != kAnswered && how != kRefused)) {
    ::kill(pid_, SIGKILL);
    (void)reap();
    return lose("gave an answer that is none, and was ended");
  }
  std::string text(buffer.data() + 1, static_cast<std::size_t>(count - 1));
  if (how == kAnswered) return {Outcome::answered, std::move(text)};
  for (char& c : text) {  // one line, whatever the child has made of it
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
  }
  return {Outcome::refused, std::move(text)};
}

ChildProcess::Answer ChildProcess::lose(std::string how) {
  lost_ = std::move(how);
  return {Outcome::lost, lost_};
}

// Its end of the socket is closed before it can be waited for; and if it only closed that, it is ended.
std::string ChildProcess::reap() {
  constexpr int kLooks = 1000;
  const pid_t pid = std::exchange(pid_, -1);
  int status = 0;
  for (int look = 0;; ++look) {
    const pid_t ended = ::waitpid(pid, &status, WNOHANG);
    if (ended == pid) break;
    if (ended < 0 && errno != EINTR) return "has ended";  // somebody else waited for it
    if (look == kLooks) ::kill(pid, SIGKILL);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  if (WIFSIGNALED(status)) {
    return fmt::format("was ended by signal {} ({})", WTERMSIG(status), name_of_signal(WTERMSIG(status)));
  }
  return fmt::format("ended with status {}", WEXITSTATUS(status));
}

}  // namespace athanor::detail
