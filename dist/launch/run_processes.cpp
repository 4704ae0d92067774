#include "dist/launch/run_processes.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>

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

constexpr std::chrono::seconds kGrace{5};  // between being told to end and being killed

/// The parent of a process; 0 where it is gone. "PID (name) S PPID ...", and a name may hold anything.
pid_t parent_of(const std::string& pid) {
  std::ifstream file("/proc/" + pid + "/stat");
  std::string line;
  std::getline(file, line);
  const std::size_t end = line.rfind(')');
  if (end == std::string::npos || end + 4 > line.size()) return 0;
  return static_cast<pid_t>(std::atoi(line.c_str() + end + 4));
}

std::vector<pid_t> children_of(pid_t parent) {
  std::vector<pid_t> found;
  std::error_code error;
  for (fs::directory_iterator at("/proc", error), end; !error && at != end; at.increment(error)) {
    const std::string name = at->path().filename().string();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    if (parent_of(name) == parent) found.push_back(static_cast<pid_t>(std::stol(name)));
  }
  return found;
}

// A child ---------------------------------------------------------------------------------------------------

struct Child {
  pid_t pid = -1;
  int rank = -1;
  int errors = -1;  // its stderr
  std::string line;
  bool running = true;
};

[[noreturn]] void become(const Command& command, int errors, pid_t parent) {
  ::setpgid(0, 0);
  // mpirun cleans up when it is asked to end; a rank has nothing to clean up.
  ::prctl(PR_SET_PDEATHSIG, command.rank < 0 ? SIGTERM : SIGKILL);
  if (::getppid() != parent) ::_exit(1);
  // In a process group of its own, reading from a terminal would stop it.
  const int nothing = ::open("/dev/null", O_RDONLY);
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

/// "[HOST:PID] ...", or "[warn] ..." of the event loop that mpirun runs in.
bool is_of_mpirun(const std::string& line) {
  if (line.starts_with("[warn] ") || line.starts_with("[err] ")) return true;
  const std::size_t colon = line.find(':'), end = line.find(']');
  return line.starts_with('[') && colon < end && end < line.size() && end > colon + 1 &&
         line.find_first_not_of("0123456789", colon + 1) == end;
}

class Errors {
 public:
  void read(Child& child) {
    char buffer[4096];
    const ssize_t got = ::read(child.errors, buffer, sizeof buffer);
    if (got < 0 && errno == EINTR) return;
    if (got <= 0) {
      if (!child.line.empty()) tell(child, child.line);
      ::close(child.errors);
      child.errors = -1;
      return;
    }
    for (ssize_t i = 0; i < got; ++i) {
      if (buffer[i] != '\n') {
        child.line += buffer[i];
      } else {
        tell(child, child.line);
        child.line.clear();
      }
    }
  }

  /// mpirun's own words, where they are all there is.
  void end(int exit_code) {
    const bool known =
        exit_code == 0 || explained_ || exit_code == 128 + SIGINT || exit_code == 128 + SIGTERM;
    if (!known) std::fputs(held_.c_str(), stderr);
  }

 private:
  void tell(const Child& child, std::string line) {
    while (line.ends_with('\r')) line.pop_back();
    explained_ |= line.find("error:") != std::string::npos;
    const bool frame = line.size() > 60 && line.find_first_not_of('-') == std::string::npos;
    if (child.rank < 0 && (frame || framed_ || is_of_mpirun(line))) {
      framed_ ^= frame;
      held_ += line + "\n";
      return;
    }
    const bool named = child.rank < 0 || line.starts_with("rank ");
    std::fprintf(stderr, "%s%s\n", named ? "" : fmt::format("rank {}: ", child.rank).c_str(), line.c_str());
  }

  std::string held_;
  bool framed_ = false, explained_ = false;
};

// All of them -----------------------------------------------------------------------------------------------

class Job {
 public:
  explicit Job(const std::vector<Command>& commands) : not_ours_(children_of(::getpid())) {
    ::prctl(PR_SET_CHILD_SUBREAPER, 1);
    sigset_t wanted;
    sigemptyset(&wanted);
    for (const int signal : {SIGINT, SIGTERM, SIGCHLD}) sigaddset(&wanted, signal);
    // signalfd would hear it under nohup, too, which wants it ignored.
    struct sigaction hangup {};
    ::sigaction(SIGHUP, nullptr, &hangup);
    if (hangup.sa_handler != SIG_IGN) sigaddset(&wanted, SIGHUP);
    ::sigprocmask(SIG_BLOCK, &wanted, &mask_before_);
    signals_ = ::signalfd(-1, &wanted, SFD_CLOEXEC | SFD_NONBLOCK);
    try {
      for (const Command& command : commands) {
        children_.push_back(start(command));
        if (command.inherited >= 0) ::close(command.inherited);
      }
    } catch (...) {
      clear();
      throw;
    }
  }
  ~Job() { clear(); }
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  int run() {
    while (std::any_of(children_.begin(), children_.end(), [](const Child& c) { return c.running; })) {
      wait();
      collect();
      if (first_failure_ && !told_) tell_to_end(SIGTERM);
      if (told_ && Clock::now() > kill_at_) kill_all();
    }
    for (Child& child : children_) drain(child);
    errors_.end(first_failure_);
    return first_failure_;
  }

 private:
  void wait() {
    std::vector<pollfd> ends{{signals_, POLLIN, 0}};
    for (const Child& child : children_)
      if (child.errors >= 0) ends.push_back({child.errors, POLLIN, 0});
    if (::poll(ends.data(), ends.size(), told_ ? 100 : 1000) <= 0) return;
    for (Child& child : children_) {
      const auto end = std::find_if(ends.begin(), ends.end(),
                                    [&](const pollfd& p) { return p.fd == child.errors && p.revents != 0; });
      if (child.errors >= 0 && end != ends.end()) errors_.read(child);
    }
    signalfd_siginfo info;
    while (::read(signals_, &info, sizeof info) == static_cast<ssize_t>(sizeof info)) {
      // Ranks save on SIGTERM; a terminal that has gone away is no less a reason to.
      if (info.ssi_signo != SIGCHLD) pass_on(info.ssi_signo == SIGINT ? SIGINT : SIGTERM);
    }
  }

  void pass_on(int signal) {
    if (asked_++ > 0) return kill_all();
    for (const Child& child : children_) {
      if (!child.running) continue;
      if (child.rank >= 0) {
        ::kill(child.pid, signal);
      } else {
        // mpirun would give its ranks a second, and no more.
        const std::vector<pid_t> ranks = children_of(child.pid);
        for (const pid_t rank : ranks) ::kill(rank, signal);
        if (ranks.empty()) ::kill(child.pid, signal);
      }
    }
  }

  void collect() {
    for (Child& child : children_) {
      int status = 0;
      if (!child.running || ::waitpid(child.pid, &status, WNOHANG) != child.pid) continue;
      child.running = false;
      const int code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
      if (first_failure_ == 0) first_failure_ = code;
      if (WIFSIGNALED(status) && child.rank >= 0 && !told_)
        std::fprintf(stderr, "rank %d: error: was ended by signal %d\n", child.rank, WTERMSIG(status));
    }
  }

  void tell_to_end(int signal) {
    told_ = true;
    kill_at_ = Clock::now() + kGrace;
    for (const Child& child : children_)
      if (child.running) ::kill(child.pid, signal);
  }

  void kill_all() {
    for (const Child& child : children_) {
      if (child.rank < 0 && child.running && !told_) {
        tell_to_end(SIGTERM);  // it kills its ranks after a second
        return;
      }
    }
    for (const Child& child : children_)
      if (child.running) ::kill(-child.pid, SIGKILL);
    told_ = true;
    kill_at_ = Clock::now() + kGrace;
  }

  void drain(Child& child) {
    while (child.errors >= 0) {
      pollfd one{child.errors, POLLIN, 0};
      if (::poll(&one, 1, 100) <= 0) break;  // somebody has inherited it
      errors_.read(child);
    }
    if (child.errors >= 0) ::close(child.errors);
    child.errors = -1;
  }

  // Whatever is left: groups first, then those whose parents have died, which are children of ours by now.
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
    ::sigprocmask(SIG_SETMASK, &mask_before_, nullptr);
  }

  const std::vector<pid_t> not_ours_;
  std::vector<Child> children_;
  Errors errors_;
  sigset_t mask_before_{};
  int signals_ = -1;
  int first_failure_ = 0, asked_ = 0;
  bool told_ = false;
  Clock::time_point kill_at_{};
};

}  // namespace

int run_processes(const std::vector<Command>& commands) {
  std::fflush(nullptr);
  Job job(commands);
  return job.run();
}

}  // namespace athanor::dist
