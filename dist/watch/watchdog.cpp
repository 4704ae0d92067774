#include "dist/watch/watchdog.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <thread>

#include <semaphore.h>
#include <sys/time.h>
#include <unistd.h>

#include "dist/collectives/session.h"
#include "dist/launch/detail/signal_stack.h"
#include "dist/watch/rank_record.h"
#include "tensor/base/error.h"
#include "tensor/base/printable.h"

namespace athanor::dist {
namespace {

/// For how long after it was stopped this rank blames no other.
constexpr std::int64_t kJustUs = 3'000'000;
/// How long a rank that a signal ends stays after its report: mpirun kills the others as soon as one has
/// ended, also those that are still writing theirs.
constexpr std::chrono::milliseconds kStays{300};
constexpr std::array kEnding{SIGTERM, SIGINT, SIGHUP};
constexpr std::array kCrashes{SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};

// Accessed by signal handlers: the process's one watchdog.
std::atomic<const FlightRecord*> watched{nullptr};
std::atomic<Watchdog*> current_watchdog{nullptr};
std::array<char, 4096> record_path{};  // empty: none
std::atomic<int> caught{0};
std::atomic<bool> crashed{false};
sem_t wake;
std::array<struct sigaction, kCrashes.size()> before_crash{};

/// "SIGTERM"; allocates nothing.
std::array<char, 16> name_of(int signal) {
  std::array<char, 16> name{"SIG"};
  std::strncat(name.data(), sigabbrev_np(signal), name.size() - 4);
  return name;
}

void write_record(std::string_view reason, std::string_view error) {
  const FlightRecord* flight = watched.load();
  if (flight && record_path[0]) flight->write(record_path.data(), reason, error);
}

void note(int signal) {
  const int error = errno;
  caught.store(signal);
  sem_post(&wake);
  errno = error;
}

void crash(int signal) {
  if (!crashed.exchange(true)) write_record(name_of(signal).data(), {});
  for (std::size_t i = 0; i < kCrashes.size(); ++i) {
    if (kCrashes[i] == signal) sigaction(signal, &before_crash[i], nullptr);
  }
  raise(signal);  // takes effect after this handler, with the previous action
}

void too_late(int) {
  _exit(kExitPeerLost);
}

/// As the signal ends a process without handlers.
[[noreturn]] void end_by(int signal) {
  std::signal(signal, SIG_DFL);
  raise(signal);
  _exit(128 + signal);
}

struct sigaction handled_by(void (*handler)(int)) {
  struct sigaction action {};
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART | SA_ONSTACK;
  sigemptyset(&action.sa_mask);
  return action;
}

}  // namespace

struct Watchdog::Impl {
  Transport& transport;
  WatchdogOptions options;
  std::filesystem::path path;
  std::atomic<bool> stop{false}, has_agreed{false}, ending{false};
  std::atomic<int> slow_rank{-1};                         // others wait for it
  std::atomic<bool> took_long{false};                     // since the last agreed()
  std::atomic<int> silent_code{-1};                       // of an end reported elsewhere
  std::atomic<std::int64_t> agreed_us{0}, longest_us{0};  // last call, and longest interval
  std::atomic<std::int64_t> looked_us{FlightRecord::now_us()}, resumed_us{0}, stopped_us{0};
  std::array<struct sigaction, kEnding.size()> before_ending{};
  std::thread thread;

  Impl(Transport& of, const WatchdogOptions& wanted) : transport(of), options(wanted) {
    if (!options.folder.empty()) {
      path = record_file(options.folder, transport.rank());
      check_writable();
    }
    if (options.agreement.count() == 0) remove_record();
    const FlightRecord* none = nullptr;
    ATH_CHECK(watched.compare_exchange_strong(none, &transport.session().flight()),
              "watchdog: there must be one per process, but this is another");
    record_path.fill(0);
    std::memcpy(record_path.data(), path.c_str(), path.native().size());
    caught = 0;
    crashed = false;
    sem_init(&wake, 0, 0);
    transport.session().on_failure = [this](Failure kind, const std::exception& error) {
      failed(kind, error);
    };
    have_signal_stack();
    thread = std::thread([this] {
      have_signal_stack();
      run();
    });
    const struct sigaction noting = handled_by(note), crashing = handled_by(crash);
    for (std::size_t i = 0; i < kEnding.size(); ++i) {
      sigaction(kEnding[i], nullptr, &before_ending[i]);
      if (before_ending[i].sa_handler != SIG_IGN) sigaction(kEnding[i], &noting, nullptr);
    }
    for (std::size_t i = 0; i < kCrashes.size(); ++i) sigaction(kCrashes[i], &crashing, &before_crash[i]);
  }

  ~Impl() {
    for (std::size_t i = 0; i < kEnding.size(); ++i) sigaction(kEnding[i], &before_ending[i], nullptr);
    for (std::size_t i = 0; i < kCrashes.size(); ++i) sigaction(kCrashes[i], &before_crash[i], nullptr);
    transport.session().on_failure = nullptr;
    stop = true;
    sem_post(&wake);
    thread.join();
    watched = nullptr;
    sem_destroy(&wake);
  }

  void check_writable() const {
    ATH_CHECK(path.native().size() < record_path.size(),
              "watchdog: the folder's name must be short, but is {}", options.folder.string());
    const std::string beside = path.string() + FlightRecord::kUnfinished;
    const int file = create_private(beside.c_str());
    if (file < 0) {
      detail::fail<IoError>("watchdog: {} must be a file that can be written, but got: {}", path.string(),
                            std::strerror(errno));
    }
    ::close(file);
    std::filesystem::remove(beside);
  }

  // Removes the record of an earlier run, or of an end that did not happen.
  void remove_record() const {
    std::error_code ignored;
    if (!path.empty()) std::filesystem::remove(path, ignored);
  }

  // The thread that a signal wakes, because others may hang.
  void run() {
    for (;;) {
      wait_for_signal();
      if (stop) return;
      if (silent_code >= 0) _exit(silent_code);
      const int signal = caught;
      const std::array<char, 16> abbreviated = name_of(signal);
      const char* const name = abbreviated.data();
      const bool may_agree = options.agreement.count() > 0;
      if (may_agree && have_agreed(name)) continue;
      if (stop) return;
      if (silent_code >= 0) _exit(silent_code);
      if (was_stopped())
        leave(kExitPeerLost, "stopped", [&] { return fmt::format("ended by {}: {}", name, stopped_for()); });
      if (may_agree && agreed_us == 0) {
        remove_record();
        end_by(signal);
      }
      if (const std::string lost = transport.lost(); !lost.empty())
        leave(kExitPeerLost, "lost", [&] { return fmt::format("{}: {}", lost, describe_wait(*flight())); });
      leave(kExitPeerLost, name, [&] {
        return fmt::format("{} ({}): {}",
                           may_agree
                               ? "asked to end, but ranks did not agree on a last step in time, so nothing "
                                 "more is saved"
                               : "asked to end",
                           name, describe_wait(*flight()));
      });
    }
  }

  // The sender of the signal may not wait as long as an agreement takes: the record comes first.
  bool have_agreed(const char* signal) {
    write_record(was_stopped() ? "stopped" : signal,
                 was_stopped() ? stopped_for() : fmt::format("{} reached rank {}", signal, transport.rank()));
    std::int64_t began = FlightRecord::now_us(), before = began;
    const std::int64_t at_least = std::chrono::microseconds(options.agreement).count();
    while (!stop && !has_agreed && silent_code < 0 && transport.lost().empty()) {
      const std::int64_t now = FlightRecord::now_us(), most = std::max(at_least, 3 * longest_us);
      if (slow_rank >= 0 && !waits_since(before)) began = now;
      before = now;
      if (now - began >= most || waits_since(now - most)) break;
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
      was_stopped();
    }
    if (!has_agreed && !stop) return false;
    remove_record();
    caught = 0;
    return true;
  }

  // The record of the network on which this rank waits: the job's or that of its passes.
  std::shared_ptr<const FlightRecord> flight() const {
    auto job = transport.session().shared_flight(), passes = transport.session().passes();
    return passes && !job->oldest_open().under_way() && passes->oldest_open().under_way() ? passes : job;
  }

  // Whether this rank has waited for another one than the slow one, without progress since then.
  bool waits_since(std::int64_t us) const {
    const FlightRecord::Entry last = flight()->oldest_open();
    return last.under_way() && last.waits_for >= 0 && last.waits_for != slow_rank && last.last_us <= us;
  }

  // A process that was stopped has lost much of its time: it blames no other.
  bool was_stopped() {
    const std::int64_t now = FlightRecord::now_us(), gap = now - looked_us.exchange(now);
    if (gap > std::chrono::microseconds(options.stopped).count()) {
      stopped_us = gap;
      resumed_us = now;
    }
    return resumed_us > 0 && now - resumed_us < kJustUs;
  }
  // Nor if it waits in vain, for a whole deadline, for ranks that gave up while it was stopped.
  bool waits_since_stopped() const {
    const FlightRecord::Entry last = flight()->oldest_open();
    return resumed_us > 0 && last.under_way() && last.launch_us - resumed_us < kJustUs;
  }
  std::string stopped_for() const {
    return fmt::format("it had been stopped for {:.1f} s itself", static_cast<double>(stopped_us) / 1e6);
  }

  void wait_for_signal() {
    while (!caught && !stop) {
      timespec until{};
      clock_gettime(CLOCK_MONOTONIC, &until);
      until.tv_nsec += 200'000'000;
      until.tv_sec += until.tv_nsec / 1'000'000'000;
      until.tv_nsec %= 1'000'000'000;
      sem_clockwait(&wake, CLOCK_MONOTONIC, &until);
      was_stopped();
    }
  }

  // On the advancing thread.
  void failed(Failure kind, const std::exception& error) {
    if (kind == Failure::error) {
      // The catcher knows it, perhaps all ranks do: an orderly end follows.
      write_record("error", printable(error.what()));
      return;
    }
    if (was_stopped() || waits_since_stopped()) {
      const std::string lost = transport.lost();
      leave(kExitPeerLost, "stopped", [&] { return lost + (lost.empty() ? "" : ": ") + stopped_for(); });
    }
    // While ranks prepare, nothing is lost, and the rank that has failed, or the launcher, says why.
    if (options.agreement.count() > 0 && agreed_us == 0 && !transport.lost().empty()) _exit(kExitPeerLost);
    if (kind == Failure::deadline) leave(kExitPeerLost, "deadline", [&] { return describe_wait(*flight()); });
    leave(kExitPeerLost, "lost", [&] { return std::string(error.what()); });
  }

  void limit_to(std::chrono::milliseconds time) const {
    const struct sigaction late = handled_by(too_late);
    sigaction(SIGALRM, &late, nullptr);
    const itimerval limit{{}, {time.count() / 1000, time.count() % 1000 * 1000}};
    setitimer(ITIMER_REAL, &limit, nullptr);
  }

  template <class Line>
  [[noreturn]] void leave(int exit_code, std::string_view reason, const Line& make_line) {
    // One thread is enough; the others stay here.
    if (ending.exchange(true)) {
      for (;;) pause();
    }
    limit_to(options.limit);
    std::string why = make_line();
    std::replace(why.begin(), why.end(), '\n', ' ');
    why = printable(why);
    write_record(reason, why);
    const std::string where = path.empty() ? "" : fmt::format(" (record: {})", printable(path.string()));
    const std::string line = fmt::format("rank {}: error: {}{}\n", transport.rank(), why, where);
    std::fflush(stdout);
    // In one write: the lines of all ranks come at about the same time.
    for (std::size_t done = 0; done < line.size();) {
      const ssize_t wrote = ::write(STDERR_FILENO, line.data() + done, line.size() - done);
      if (wrote < 0 && errno != EINTR) break;
      done += static_cast<std::size_t>(std::max<ssize_t>(wrote, 0));
    }
    if (caught) std::this_thread::sleep_for(kStays);
    _exit(exit_code);
  }
};

Watchdog::Watchdog(Transport& transport, const WatchdogOptions& options) {
  if (transport.world_size() == 1) return;
  impl_ = std::make_unique<Impl>(transport, options);
  current_watchdog = this;
}

Watchdog::~Watchdog() {
  if (impl_) current_watchdog = nullptr;
}

Watchdog* Watchdog::current() {
  return current_watchdog;
}

int Watchdog::signal() {
  return current_watchdog.load() ? caught.load() : 0;
}

void Watchdog::agreed(bool last) {
  if (!impl_) return;
  const std::int64_t now = FlightRecord::now_us(), before = impl_->agreed_us.exchange(now);
  const bool took_long = impl_->took_long.exchange(false);
  if (before > 0 && !took_long) impl_->longest_us = std::max(impl_->longest_us.load(), now - before);
  if (before == 0) impl_->remove_record();  // of a run before: this one is healthy
  impl_->has_agreed = last;                 // the signal may reach this rank after the agreement
  impl_->slow_rank = -1;                    // from now on, waiting without agreement is a stall
}

void Watchdog::set_slow_rank(int rank) {
  if (!impl_) return;
  if (rank >= 0) impl_->took_long = true;
  impl_->slow_rank = rank;
}

void Watchdog::report_own_failure(int exit_code, const std::string& why, bool accident) {
  if (!impl_) return;
  if (impl_->transport.session().flight().size() > 0 && (accident || impl_->agreed_us > 0))
    write_record("error", printable(why));
  impl_->silent_code = exit_code;
  impl_->limit_to(impl_->options.limit);
}

void Watchdog::end(int exit_code, const std::string& why) {
  if (impl_) impl_->leave(exit_code, "error", [&] { return why; });
  std::fprintf(stderr, "error: %s\n", printable(why).c_str());
  std::fflush(stdout);
  _exit(exit_code);
}

}  // namespace athanor::dist
