#include "dist/launch/run_processes.h"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>
#include <string_view>
#include <utility>

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tensor/error.h"

namespace athanor::dist {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kGrace{5};         // between the signal to end and the kill
constexpr std::chrono::seconds kAfterRanks{30};   // for mpirun to end after its ranks
constexpr std::chrono::seconds kBetweenLooks{5};  // at them

struct ProcessState {
  char state = 0;    ///< 'T': stopped
  pid_t parent = 0;  ///< 0: the process is gone
};

/// /proc/PID/stat: "PID (name) S PPID ...", where the name may contain any characters.
ProcessState state_of(const std::string& pid) {
  std::ifstream file("/proc/" + pid + "/stat");
  std::string line;
  std::getline(file, line);
  const std::size_t end = line.rfind(')');
  if (end == std::string::npos || end + 4 > line.size()) return {};
  return {line[end + 2], static_cast<pid_t>(std::atoi(line.c_str() + end + 4))};
}

std::vector<pid_t> children_of(pid_t parent) {
  std::vector<pid_t> found;
  std::error_code error;
  for (fs::directory_iterator at("/proc", error), end; !error && at != end; at.increment(error)) {
    const std::string name = at->path().filename().string();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    if (state_of(name).parent == parent) found.push_back(static_cast<pid_t>(std::stol(name)));
  }
  return found;
}

/// The program that a process runs; empty for one that has ended, waited for or not; "?" if that is secret.
fs::path program_of(pid_t pid) {
  std::error_code error;
  const fs::path program = fs::read_symlink(fmt::format("/proc/{}/exe", pid), error);
  return error == std::errc::permission_denied ? fs::path("?") : program;
}

/// Whether a process has a handler for the signal.
bool handles(pid_t pid, int signal) {
  std::ifstream file(fmt::format("/proc/{}/status", pid));
  for (std::string name, value; file >> name && std::getline(file, value);)
    if (name == "SigCgt:") return (std::strtoull(value.c_str(), nullptr, 16) >> (signal - 1) & 1) != 0;
  return false;
}

// A child ---------------------------------------------------------------------------------------------------

struct Child {
  pid_t pid = -1;
  int rank = -1;
  int errors = -1;  // its stderr
  std::string line;
  bool running = true;
  // Of mpirun.
  bool had_ranks = false;
  Clock::time_point alone_since = Clock::now();
};

[[noreturn]] void become(const Command& command, int errors, pid_t parent) {
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // an mpirun that hangs would not end on SIGTERM
  if (::getppid() != parent) ::_exit(1);
  // In a separate process group, reading from a terminal would stop it.
  const int nothing = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  ::dup2(nothing, STDIN_FILENO);
  ::dup2(errors, STDERR_FILENO);
  if (command.inherited >= 0) ::fcntl(command.inherited, F_SETFD, 0);
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  for (const std::string& variable : command.environment) {
    const std::size_t equals = variable.find('=');
    ::setenv(variable.substr(0, equals).c_str(), variable.c_str() + equals + 1, 1);
  }
  std::vector<char*> arguments;
  for (const std::string& argument : command.arguments)
    arguments.push_back(const_cast<char*>(argument.c_str()));
  arguments.push_back(nullptr);
  ::execvp(arguments[0], arguments.data());
  std::fprintf(stderr, "error: %s cannot be started: %s\n", arguments[0], std::strerror(errno));
  ::_exit(3);
}

Child start(const Command& command) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0)
    detail::fail<BackendError>("--devices: there must be a pipe for every rank, but got: {}",
                               std::strerror(errno));
  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid == 0) become(command, ends[1], parent);
  const int error = errno;
  ::close(ends[1]);
  if (pid < 0) {
    ::close(ends[0]);
    detail::fail<BackendError>("--devices: a process for every rank must be started, but got: {}",
                               std::strerror(error));
  }
  ::setpgid(pid, pid);
  return {.pid = pid, .rank = command.rank, .errors = ends[0], .line = {}};
}

// What they say ---------------------------------------------------------------------------------------------

/// "[HOST:PID] ...", "*** ..." of MPI in a rank, or "[warn] ..." of the event loop that mpirun runs in.
bool is_of_mpi(const std::string& line) {
  for (const char* start : {"[warn] ", "[err] ", "*** ", "mpirun: Forwarding", "mpirun.openmpi: Forwarding"})
    if (line.starts_with(start)) return true;
  if (line.find(" processes failed to start") != std::string::npos) return true;
  const std::size_t colon = line.find(':'), end = line.find(']');
  return line.starts_with('[') && colon < end && end < line.size() && end > colon + 1 &&
         line.find_first_not_of("0123456789", colon + 1) == end;
}

/// stderr of all children, line by line. MPI's own messages become one line at the end.
class ErrorLines {
 public:
  explicit ErrorLines(bool show_all) : show_all_(show_all) {}

  void read(Child& child) {
    char buffer[4096];
    const ssize_t got = ::read(child.errors, buffer, sizeof buffer);
    if (got < 0 && errno == EINTR) return;
    if (got <= 0) {
      if (!child.line.empty()) take(child, child.line);
      ::close(child.errors);
      child.errors = -1;
      return;
    }
    child.line.append(buffer, static_cast<std::size_t>(got));
    for (std::size_t end; (end = child.line.find('\n')) != std::string::npos; child.line.erase(0, end + 1))
      take(child, child.line.substr(0, end));
  }

  /// Whether mpirun says that a rank was ended by another signal than this one.
  bool tell_of_crash(int signal) const {
    constexpr std::string_view kEnded = "exited on signal ";
    return why_.find(kEnded) != std::string::npos &&
           why_.find(fmt::format("{}{} ", kEnded, signal)) == std::string::npos;
  }

  /// Prints why the job has ended, unless a rank has. Returns the exit code. `of_mpirun`: it may be its own.
  int end(int exit_code, bool of_mpirun) const {
    const bool by_signal =
        exit_code == 128 + SIGINT || exit_code == 128 + SIGTERM || exit_code == 128 + SIGHUP;
    if (exit_code == 0 || explained_ || by_signal) return exit_code;
    if (!why_.empty()) {
      std::fprintf(stderr, "error: Open MPI: %s; ATHANOR_DIST_DEBUG=1 shows all of its output\n",
                   why_.substr(0, kMaxOfWhy).c_str());
      return exit_code == 1 ? 3 : exit_code;  // 1 is mpirun's own code; ours are specific
    }
    if (framed_) {
      std::fprintf(stderr, "error: a rank ended with code %d, without giving a reason\n", exit_code);
    } else if (exit_code == 1 && of_mpirun) {
      std::fputs("error: mpirun ended with code 1, without giving a reason\n", stderr);
      return 3;
    }
    return exit_code;
  }

 private:
  static constexpr std::size_t kMaxOfWhy = 400, kRule = 60;

  void take(const Child& child, std::string line) {
    while (line.ends_with('\r')) line.pop_back();
    // Open MPI 5 may begin its own message in the middle of a rank's line.
    if (const std::size_t rule = line.find(std::string(kRule, '-'));
        child.rank < 0 && rule != std::string::npos && rule > 0) {
      take(child, line.substr(0, rule));
      line.erase(0, rule);
    }
    const bool frame = line.size() > kRule && line.find_first_not_of('-') == std::string::npos;
    const bool of_rank = line.starts_with("rank ") || line.starts_with("error: ");
    if (child.rank < 0 && !of_rank && (frame || in_frame_ || is_of_mpi(line))) {
      if (show_all_) std::fprintf(stderr, "%s\n", line.c_str());
      return hold(line, frame);
    }
    explained_ |= line.find("error:") != std::string::npos;
    const bool named = child.rank < 0 || line.starts_with("rank ");
    std::fprintf(stderr, "%s%s\n", named ? "" : fmt::format("rank {}: ", child.rank).c_str(), line.c_str());
  }

  /// Keeps the first paragraph between two rules that gives a reason, or the first line outside any.
  void hold(const std::string& line, bool frame) {
    if (frame) {
      in_frame_ = !in_frame_;
      over_ = false;
      framed_ = true;
      if (!in_frame_ && !paragraph_.empty()) use(std::exchange(paragraph_, {}), true);
    } else if (!in_frame_) {
      const std::size_t from = line.starts_with('[') ? line.find("] ") + 2 : line.find_first_not_of("* ");
      if (from < line.size()) use(line.substr(from), false);
    } else if (line.find_first_not_of(' ') == std::string::npos) {
      over_ |= !paragraph_.empty() && !paragraph_.ends_with(':');
    } else if (!over_) {
      if (!paragraph_.empty()) paragraph_ += ' ';
      paragraph_ += line.substr(line.find_first_not_of(' '));
    }
  }

  void use(std::string text, bool framed) {
    // "A rank has ended" is a consequence, not the reason.
    for (const char* consequence : {"Primary job", "detected that one or more processes", "more process"})
      if (text.find(consequence) != std::string::npos) return;
    while (text.ends_with('.')) text.pop_back();
    if (why_.empty() || (framed && !why_framed_)) {
      why_ = std::move(text);
      why_framed_ = framed;
    }
  }

  const bool show_all_;
  std::string paragraph_, why_;
  bool framed_ = false, in_frame_ = false, over_ = false, why_framed_ = false, explained_ = false;
};

// All of them -----------------------------------------------------------------------------------------------

/// While alive, the signals that are passed on or handled wait to be read.
class HeldSignals {
 public:
  HeldSignals() {
    sigemptyset(&signals_);
    for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGTSTP}) {
      struct sigaction action {};
      ::sigaction(signal, nullptr, &action);
      if (action.sa_handler != SIG_IGN)  // signalfd also reports ignored signals
        sigaddset(&signals_, signal);
    }
    for (const int signal : {SIGCHLD, SIGUSR1}) sigaddset(&signals_, signal);
    ::sigprocmask(SIG_BLOCK, &signals_, &before_);
  }
  ~HeldSignals() { ::sigprocmask(SIG_SETMASK, &before_, nullptr); }
  HeldSignals(const HeldSignals&) = delete;
  HeldSignals& operator=(const HeldSignals&) = delete;

  const sigset_t& signals() const { return signals_; }

 private:
  sigset_t signals_{}, before_{};
};

class Processes {
 public:
  Processes(const std::function<std::vector<Command>()>& commands, const RunOptions& options)
      : options_(options),
        commands_(commands()),
        not_ours_(children_of(::getpid())),
        errors_(options.show_all) {
    ::prctl(PR_SET_CHILD_SUBREAPER, 1);
    signals_ = ::signalfd(-1, &held_.signals(), SFD_CLOEXEC | SFD_NONBLOCK);
    if (signals_ < 0)
      detail::fail<BackendError>("--devices: signals must have a file descriptor, but got: {}",
                                 std::strerror(errno));
    try {
      for (const Command& command : commands_) {
        children_.push_back(start(command));
        if (command.inherited >= 0) ::close(command.inherited);
      }
    } catch (...) {
      clear();
      throw;
    }
  }
  ~Processes() { clear(); }
  Processes(const Processes&) = delete;
  Processes& operator=(const Processes&) = delete;

  int run() {
    while (std::any_of(children_.begin(), children_.end(), [](const Child& c) { return c.running; })) {
      wait();
      collect();
      if (signal_ && !killing_) pass_signal_on();
      if (signal_ && !killing_ && Clock::now() > kill_at_) give_up();
      if (failed_ && !killing_) end_all(SIGTERM);
      for (Child& child : children_)
        if (child.running && child.rank < 0) look_after_mpirun(child);
      if (killing_ && Clock::now() > kill_at_) kill_all();
    }
    for (Child& child : children_) drain(child);
    if (signal_ && (first_failure_ == 128 + SIGTERM || (of_mpirun_ && !errors_.tell_of_crash(signal_))))
      first_failure_ = 128 + signal_;  // mpirun received the signal on its behalf
    return gave_up_ ? kGaveUp : errors_.end(first_failure_, of_mpirun_);
  }

 private:
  static constexpr int kGaveUp = 74;  // kExitPeerLost: ranks that do not respond

  void wait() {
    std::vector<pollfd> ends{{signals_, POLLIN, 0}};
    for (const Child& child : children_)
      if (child.errors >= 0) ends.push_back({child.errors, POLLIN, 0});
    const bool begins = std::any_of(children_.begin(), children_.end(),
                                    [](const Child& c) { return c.rank < 0 && !c.had_ranks; });
    if (::poll(ends.data(), ends.size(), signal_ || killing_ || begins ? 100 : 1000) <= 0) return;
    for (Child& child : children_) {
      const auto end = std::find_if(ends.begin(), ends.end(),
                                    [&](const pollfd& p) { return p.fd == child.errors && p.revents != 0; });
      if (child.errors >= 0 && end != ends.end()) errors_.read(child);
    }
    signalfd_siginfo info;
    while (::read(signals_, &info, sizeof info) == static_cast<ssize_t>(sizeof info)) {
      const int signal = static_cast<int>(info.ssi_signo);
      if (signal == SIGCHLD) continue;
      if (signal == SIGTSTP) {
        stop_and_go_on();
      } else if (signal == SIGUSR1) {
        for (const Child& child : children_)
          for (const pid_t rank : ranks_of(child))
            if (handles(rank, SIGUSR1)) ::kill(rank, SIGUSR1);  // one that does not yet would be ended
      } else if (signal_) {
        if (signal != SIGHUP) kill_all();  // system and shell both report a closed terminal
      } else {
        signal_ = signal;
        for (Child& child : children_) child.alone_since = Clock::now();
        kill_at_ = Clock::now() + options_.end_within;
      }
    }
  }

  /// A stopped mpirun starts, forwards and ends nothing. (It forwards SIGCONT to ranks only if stopped.)
  void wake_mpirun() const {
    for (const Child& child : children_) {
      if (child.rank < 0 && child.running && state_of(std::to_string(child.pid)).state == 'T')
        ::kill(child.pid, SIGCONT);
    }
  }

  /// The living ranks started by this process or its mpirun. A child of mpirun is none yet while it runs
  /// mpirun's own program: a signal would reach mpirun's handler.
  static std::vector<pid_t> ranks_of(const Child& child) {
    if (!child.running) return {};
    if (child.rank >= 0) return {child.pid};
    std::vector<pid_t> ranks = children_of(child.pid);
    const fs::path mpirun = program_of(child.pid);
    std::erase_if(ranks, [&](pid_t pid) {
      const fs::path program = program_of(pid);
      return program.empty() || (program == mpirun && program != "?");
    });
    return ranks;
  }

  /// mpirun may wait for ever: for ranks that have ended, or before it starts them.
  void look_after_mpirun(Child& mpirun) {
    const Clock::time_point now = Clock::now();
    if (mpirun.had_ranks && !signal_ && !killing_ && now < next_look_) return;
    next_look_ = now + kBetweenLooks;
    if (!ranks_of(mpirun).empty()) {
      mpirun.had_ranks = true;
      mpirun.alone_since = now;
      return;
    }
    const std::chrono::milliseconds patience = signal_            ? options_.alone_within
                                               : mpirun.had_ranks ? std::chrono::milliseconds(kAfterRanks)
                                                                  : options_.end_within;
    if (now - mpirun.alone_since < patience) return;
    if (!signal_ && !gave_up_ && !killing_) {
      gave_up_ = true;
      std::fprintf(stderr, "error: mpirun must %s within %g s%s, but has not; killing it\n",
                   mpirun.had_ranks ? "end" : "start ranks", static_cast<double>(patience.count()) / 1000,
                   mpirun.had_ranks ? " after its ranks" : " (--dist-timeout)");
    }
    ::kill(-mpirun.pid, SIGKILL);
  }

  void pass_signal_on() {
    wake_mpirun();  // repeatedly: a stop is visible only after a moment
    for (const Child& child : children_) {
      // mpirun would kill its ranks after a second: it is signalled only if it has none yet.
      if (child.running && told_.empty() && child.rank < 0 && children_of(child.pid).empty())
        ::kill(child.pid, SIGTERM);
      for (const pid_t rank : ranks_of(child))
        if (told_.insert(rank).second) ::kill(rank, signal_);
    }
  }

  void give_up() {
    gave_up_ = true;
    std::fprintf(stderr, "error: SIG%s: ranks must end within %g s, but have not; killing them\n",
                 ::sigabbrev_np(signal_), static_cast<double>(options_.end_within.count()) / 1000);
    kill_all();
  }

  /// Ctrl-Z: the terminal signals only this process group, and ranks are in others.
  void stop_and_go_on() {
    const Clock::time_point began = Clock::now();
    send_to_ranks(SIGSTOP);
    sigset_t stop;
    sigemptyset(&stop);
    sigaddset(&stop, SIGTSTP);
    ::raise(SIGTSTP);
    ::sigprocmask(SIG_UNBLOCK, &stop, nullptr);  // stops here
    ::sigprocmask(SIG_BLOCK, &stop, nullptr);
    send_to_ranks(SIGCONT);
    kill_at_ += Clock::now() - began;
  }

  void send_to_ranks(int signal) const {
    for (const Child& child : children_)
      for (const pid_t rank : ranks_of(child)) ::kill(rank, signal);
  }

  void collect() {
    for (Child& child : children_) {
      int status = 0;
      if (!child.running || ::waitpid(child.pid, &status, WNOHANG) != child.pid) continue;
      child.running = false;
      const int code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
      if (first_failure_ == 0) {
        first_failure_ = code;
        of_mpirun_ = child.rank < 0 && (code == 1 || code > 128);  // a rank has other codes, or crashed
      }
      failed_ |= code != 0 && (signal_ == 0 || code != 128 + signal_);  // other ranks may still be saving
      if (WIFSIGNALED(status) && child.rank >= 0 && !killing_)
        std::fprintf(stderr, "rank %d: error: was killed by signal %d\n", child.rank, WTERMSIG(status));
    }
  }

  void end_all(int signal) {
    killing_ = true;
    kill_at_ = Clock::now() + kGrace;
    for (const Child& child : children_)
      if (child.running) ::kill(child.pid, signal);
  }

  void kill_all() {
    // mpirun kills its ranks a second after SIGTERM.
    const bool has_mpirun = std::any_of(children_.begin(), children_.end(),
                                        [](const Child& c) { return c.rank < 0 && c.running; });
    if (has_mpirun && !killing_) return end_all(SIGTERM);
    end_all(SIGKILL);
    for (const Child& child : children_)
      if (child.running) ::kill(-child.pid, SIGKILL);
  }

  void drain(Child& child) {
    while (child.errors >= 0) {
      pollfd one{child.errors, POLLIN, 0};
      if (::poll(&one, 1, 100) <= 0) break;  // another process has inherited it
      errors_.read(child);
    }
    if (child.errors >= 0) ::close(child.errors);
    child.errors = -1;
  }

  // Kills the rest: groups first, then orphans, which this process has adopted.
  void clear() {
    for (Child& child : children_) {
      ::kill(-child.pid, SIGKILL);
      drain(child);
    }
    children_.clear();
    for (int rounds = 0; rounds < 50; ++rounds) {
      std::vector<pid_t> orphans = children_of(::getpid());
      std::erase_if(orphans, [&](pid_t pid) {
        return std::find(not_ours_.begin(), not_ours_.end(), pid) != not_ours_.end();
      });
      for (const pid_t orphan : orphans) ::kill(orphan, SIGKILL);
      for (const pid_t orphan : orphans) ::waitpid(orphan, nullptr, WNOHANG);
      if (orphans.empty()) break;
      ::usleep(20'000);
    }
    if (signals_ >= 0) ::close(signals_);
    signals_ = -1;
  }

  const RunOptions options_;
  const HeldSignals held_;
  const std::vector<Command> commands_;
  const std::vector<pid_t> not_ours_;
  std::vector<Child> children_;
  ErrorLines errors_;
  int signals_ = -1;
  int first_failure_ = 0, signal_ = 0;  // the first of each
  bool of_mpirun_ = false;              // the failure is
  bool failed_ = false;                 // a child failed, not because of that signal
  std::set<pid_t> told_;                // ranks that received it
  bool killing_ = false, gave_up_ = false;
  Clock::time_point kill_at_{}, next_look_{};
};

}  // namespace

int run_processes(const std::function<std::vector<Command>()>& commands, const RunOptions& options) {
  std::fflush(nullptr);
  Processes processes(commands, options);
  return processes.run();
}

}  // namespace athanor::dist
