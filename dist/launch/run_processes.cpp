// Explained in docs/when_a_rank_dies.md.
#include "dist/launch/run_processes.h"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "dist/watch/watchdog.h"
#include "tensor/base/error.h"

namespace athanor::dist {
namespace {

using Clock = std::chrono::steady_clock;

/// Between the signal to end and the kill: ranks may agree on a last step, and report.
constexpr std::chrono::seconds kGrace{5};

struct Rank {
  int number = 0;
  pid_t pid = -1;
  int errors = -1;  ///< its stderr
  std::string line = {};
  bool running = true;
  bool said_why = false;
};

// After fork(): only what a signal handler might call.
[[noreturn]] void become(char** arguments, char** environment, const Command& command, int errors,
                         pid_t parent) {
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(128 + SIGKILL);  // it has just died
  // In a process group of its own, reading from a terminal would stop it.
  ::dup2(::open("/dev/null", O_RDONLY | O_CLOEXEC), STDIN_FILENO);
  ::dup2(errors, STDERR_FILENO);
  for (const int file : command.inherited) ::fcntl(file, F_SETFD, 0);
  std::signal(SIGUSR1, SIG_IGN);
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  ::execvpe(arguments[0], arguments, environment);
  constexpr char kWhy[] = "error: the program cannot be started\n";
  (void)!::write(STDERR_FILENO, kWhy, sizeof kWhy - 1);
  ::_exit(3);
}

std::vector<char*> pointers(const std::vector<std::string>& texts) {
  std::vector<char*> all;
  for (const std::string& text : texts) all.push_back(const_cast<char*>(text.c_str()));
  all.push_back(nullptr);
  return all;
}

Rank start(const Command& command, int number) {
  std::vector<std::string> variables = command.environment;  // the first of a name counts
  for (char** at = environ; *at; ++at) {
    const std::string_view variable(*at);
    const std::string_view name = variable.substr(0, variable.find('=') + 1);
    const bool set =
        std::ranges::any_of(command.environment, [&](const auto& own) { return own.starts_with(name); });
    if (!set) variables.emplace_back(variable);
  }
  const std::vector<char*> arguments = pointers(command.arguments), environment = pointers(variables);
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0)
    detail::fail<BackendError>("--devices: there must be a pipe for every rank, but got: {}",
                               std::strerror(errno));
  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid == 0)
    become(const_cast<char**>(arguments.data()), const_cast<char**>(environment.data()), command, ends[1],
           parent);
  const int error = errno;
  ::close(ends[1]);
  if (pid < 0) {
    ::close(ends[0]);
    detail::fail<BackendError>("--devices: a process for every rank must be started, but got: {}{}",
                               std::strerror(error), error == EAGAIN ? " (ulimit -u)" : "");
  }
  ::setpgid(pid, pid);
  return {.number = number, .pid = pid, .errors = ends[0]};
}

/// Prints what a rank has written to stderr, line by line.
void read_errors(Rank& rank) {
  const auto print = [&](const std::string& line) {
    rank.said_why |= line.find("error:") != std::string::npos;
    const bool named = rank.number == 0 || line.starts_with("rank ");
    std::fprintf(stderr, "%s%s\n", named ? "" : fmt::format("rank {}: ", rank.number).c_str(), line.c_str());
  };
  char buffer[4096];
  const ssize_t got = ::read(rank.errors, buffer, sizeof buffer);
  if (got < 0 && errno == EINTR) return;
  if (got <= 0) {
    if (!rank.line.empty()) print(rank.line);
    ::close(rank.errors);
    rank.errors = -1;
    return;
  }
  rank.line.append(buffer, static_cast<std::size_t>(got));
  for (std::size_t end; (end = rank.line.find('\n')) != std::string::npos; rank.line.erase(0, end + 1))
    print(rank.line.substr(0, end));
}

/// While alive, the signals that are passed on or handled wait to be read.
class HeldSignals {
 public:
  HeldSignals() {
    sigset_t signals;
    sigemptyset(&signals);
    for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGTSTP}) {
      struct sigaction action {};
      ::sigaction(signal, nullptr, &action);
      if (action.sa_handler != SIG_IGN)  // signalfd also reports ignored signals
        sigaddset(&signals, signal);
    }
    for (const int signal : {SIGCHLD, SIGUSR1}) sigaddset(&signals, signal);
    std::signal(SIGCHLD, SIG_DFL);  // if it is ignored, no process can be waited for
    file_ = ::signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
    if (file_ < 0)
      detail::fail<BackendError>("--devices: signals must have a file descriptor, but got: {}",
                                 std::strerror(errno));
    ::sigprocmask(SIG_BLOCK, &signals, &before_);
  }
  ~HeldSignals() {
    ::close(file_);
    ::sigprocmask(SIG_SETMASK, &before_, nullptr);
  }
  HeldSignals(const HeldSignals&) = delete;
  HeldSignals& operator=(const HeldSignals&) = delete;

  int file() const { return file_; }
  /// The next signal; 0: none.
  int next() const {
    signalfd_siginfo info;
    const bool any = ::read(file_, &info, sizeof info) == static_cast<ssize_t>(sizeof info);
    return any ? static_cast<int>(info.ssi_signo) : 0;
  }

 private:
  int file_ = -1;
  sigset_t before_{};
};

class Processes {
 public:
  Processes(const std::vector<Command>& commands, const RunOptions& options) : options_(options) {
    try {
      for (const Command& command : commands)
        ranks_.push_back(start(command, static_cast<int>(ranks_.size())));
    } catch (...) {
      kill_groups();
      throw;
    }
  }
  ~Processes() { kill_groups(); }
  Processes(const Processes&) = delete;
  Processes& operator=(const Processes&) = delete;

  int run() {
    while (std::ranges::any_of(ranks_, &Rank::running)) {
      wait();
      while (const int signal = signals_.next()) take(signal);
      collect();
      if ((signal_ != 0 || ending_) && Clock::now() > kill_at_) out_of_time();
    }
    if (gave_up_) return kExitPeerLost;
    const bool said_why =
        first_failure_ == 0 || first_failure_ > 128 || std::ranges::any_of(ranks_, &Rank::said_why);
    if (!said_why)
      std::fprintf(stderr, "error: a rank ended with code %d, without giving a reason\n", first_failure_);
    return first_failure_;
  }

 private:
  void wait() {
    std::vector<pollfd> ends{{signals_.file(), POLLIN, 0}};
    for (const Rank& rank : ranks_)
      ends.push_back({rank.errors, POLLIN, 0});  // a negative one is passed over
    if (::poll(ends.data(), ends.size(), signal_ != 0 || ending_ ? 100 : 1000) <= 0) return;
    for (std::size_t i = 0; i < ranks_.size(); ++i)
      if (ends[i + 1].revents != 0) read_errors(ranks_[i]);
  }

  void take(int signal) {
    if (signal == SIGCHLD) return;
    if (signal == SIGUSR1) return send(SIGUSR1);
    if (signal == SIGTSTP) return stop_and_go_on();
    if (signal_ != 0) {
      if (signal == SIGHUP) return;  // system and shell both report a closed terminal
      ending_ = true;
      return send(SIGKILL);
    }
    signal_ = signal;
    kill_at_ = Clock::now() + options_.end_within;
    send(signal);
    if (options_.on_signal) options_.on_signal();
  }

  void send(int signal) const {
    for (const Rank& rank : ranks_)
      if (rank.running) ::kill(rank.pid, signal);
  }

  /// Ctrl-Z: the terminal signals only this process group, and ranks are in others.
  void stop_and_go_on() {
    const Clock::time_point began = Clock::now();
    send(SIGSTOP);
    sigset_t stop;
    sigemptyset(&stop);
    sigaddset(&stop, SIGTSTP);
    ::raise(SIGTSTP);
    ::sigprocmask(SIG_UNBLOCK, &stop, nullptr);  // stops here
    ::sigprocmask(SIG_BLOCK, &stop, nullptr);
    send(SIGCONT);
    kill_at_ += Clock::now() - began;
  }

  void collect() {
    for (Rank& rank : ranks_) {
      int status = 0;
      if (!rank.running || ::waitpid(rank.pid, &status, WNOHANG) != rank.pid) continue;
      rank.running = false;
      drain(rank);
      const int code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
      if (first_failure_ == 0) first_failure_ = code;
      const bool asked = signal_ != 0 && code == 128 + signal_;  // other ranks may still be saving
      if (WIFSIGNALED(status) && !asked && !ending_ && !gave_up_)
        std::fprintf(stderr, "rank %d: error: was killed by signal %d\n", rank.number, WTERMSIG(status));
      const bool others = std::ranges::any_of(ranks_, &Rank::running);
      if (others && options_.on_end && !asked && code != kExitPeerLost) options_.on_end(rank.number, code);
      if (code != 0 && !asked && !ending_) end_others();
    }
  }

  void end_others() {
    ending_ = true;
    kill_at_ = Clock::now() + kGrace;
    send(SIGTERM);
    send(SIGCONT);  // one that was stopped
  }

  void out_of_time() {
    if (!ending_ && !gave_up_) {
      gave_up_ = true;
      std::fprintf(stderr, "error: SIG%s: ranks must end within %g s, but have not; killing them\n",
                   ::sigabbrev_np(signal_), static_cast<double>(options_.end_within.count()) / 1000);
    }
    send(SIGKILL);
  }

  static void drain(Rank& rank) {
    while (rank.errors >= 0) {
      pollfd one{rank.errors, POLLIN, 0};
      if (::poll(&one, 1, 0) <= 0) break;  // a process of the rank's has inherited it
      read_errors(rank);
    }
  }

  /// What ranks have started, and ranks if one of them could not be.
  void kill_groups() {
    for (Rank& rank : ranks_) {
      ::kill(-rank.pid, SIGKILL);
      if (rank.running) ::waitpid(rank.pid, nullptr, 0);
      drain(rank);
      if (rank.errors >= 0) ::close(rank.errors);
    }
    ranks_.clear();
  }

  const RunOptions& options_;
  const HeldSignals signals_;
  std::vector<Rank> ranks_;
  int first_failure_ = 0, signal_ = 0;     // the first of each
  bool ending_ = false, gave_up_ = false;  // a rank has failed; ranks do not end on a signal
  Clock::time_point kill_at_{};
};

}  // namespace

int run_processes(const std::vector<Command>& commands, const RunOptions& options) {
  std::fflush(nullptr);
  Processes processes(commands, options);
  return processes.run();
}

}  // namespace athanor::dist
