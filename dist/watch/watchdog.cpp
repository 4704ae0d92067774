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
#include "dist/watch/detail/culprit.h"
#include "dist/watch/rank_record.h"
#include "tensor/error.h"
#include "tensor/printable.h"

namespace athanor::dist {
namespace {

/// Maximum waits for other ranks' records. Ranks told by a signal write at once, or already wrote when it was
/// announced; ranks that give up by themselves do so at about the same time.
constexpr std::int64_t kToldOthersUs = 300'000, kForetoldOthersUs = 100'000, kOthersUs = 1'000'000;
constexpr std::int64_t kMarginUs = 300'000, kTurnUs = 100'000, kToldUs = 3'000'000;  // see let_others_end()
/// After this time without a message, ranks with short steps have stalled.
constexpr std::int64_t kStillUs = 700'000;
/// mpirun ends a rank by SIGCONT, SIGTERM a second later, and SIGKILL another second later. SIGTERM comes
/// within the first time after SIGCONT; after the second, a rank must begin its report.
constexpr std::int64_t kAnnouncedUs = 1'500'000, kSpeakUs = 400'000;
constexpr std::array kEnding{SIGTERM, SIGINT, SIGHUP};
constexpr std::array kCrashes{SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};

// Accessed by signal handlers: the process's one watchdog.
std::atomic<const FlightRecord*> watched{nullptr};
std::atomic<Watchdog*> current_watchdog{nullptr};
std::array<char, 4096> record_path{};  // empty: none
std::atomic<int> caught{0};
std::atomic<std::int64_t> caught_us{0}, continued_us{0};
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
  caught_us = FlightRecord::now_us();
  caught.store(signal);
  sem_post(&wake);
  errno = error;
}

void note_continued(int) {
  const int error = errno;
  continued_us = FlightRecord::now_us();
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

double seconds_since(std::int64_t us) {
  const std::int64_t tenths = (FlightRecord::now_us() - us) / 100'000;
  return static_cast<double>(tenths) / 10;
}

}  // namespace

struct Watchdog::Impl {
  Transport& transport;
  WatchdogOptions options;
  std::filesystem::path path;
  std::atomic<bool> stop{false}, has_agreed{false}, ending{false};
  std::atomic<bool> foretold{false};                      // its record was written before the signal to end
  std::atomic<int> slow_rank{-1};                         // others wait for it
  std::atomic<bool> took_long{false};                     // since the last agreed()
  std::atomic<int> silent_code{-1};                       // of an end reported elsewhere
  std::atomic<std::int64_t> agreed_us{0}, longest_us{0};  // last call, and longest interval
  std::array<struct sigaction, kEnding.size()> before_ending{};
  struct sigaction before_continuing {};
  double stopped_s = 0;  // and went on then:
  std::int64_t resumed_us = 0;
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
    continued_us = 0;
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
    const struct sigaction noting = handled_by(note), crashing = handled_by(crash),
                           continuing = handled_by(note_continued);
    sigaction(SIGCONT, &continuing, &before_continuing);
    for (std::size_t i = 0; i < kEnding.size(); ++i) {
      sigaction(kEnding[i], nullptr, &before_ending[i]);
      if (before_ending[i].sa_handler != SIG_IGN) sigaction(kEnding[i], &noting, nullptr);
    }
    for (std::size_t i = 0; i < kCrashes.size(); ++i) sigaction(kCrashes[i], &crashing, &before_crash[i]);
  }

  ~Impl() {
    sigaction(SIGCONT, &before_continuing, nullptr);
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
      const bool announced = continued_us > 0 && continued_us > caught_us - kAnnouncedUs;
      const std::array<char, 16> abbreviated = name_of(signal);
      const char* const name = abbreviated.data();
      if (options.agreement.count() > 0 && have_agreed(name)) continue;
      if (stop) return;
      if (silent_code >= 0) _exit(silent_code);
      if (options.agreement.count() > 0 && agreed_us == 0 && !announced && !just_stopped()) {
        remove_record();
        end_by(signal);
      }
      const bool in_vain = options.agreement.count() > 0 && !is_stalled();
      leave(kExitPeerLost, just_stopped() ? "stopped" : name, [&] {
        if (just_stopped()) return fmt::format("ended by {}: {}", name, stopped_for());
        const Culprit found = culprit();
        if (found.ended >= 0 && options.agreement.count() > 0)
          return fmt::format("ended with rank {}, which has an error of its own", found.ended);
        return in_vain ? fmt::format(
                             "asked to end, but ranks did not agree on a last step in time, so nothing more "
                             "is saved ({}): {}",
                             name, found.text)
                       : fmt::format("ended by {}: {}", name, found.text);
      });
    }
  }

  // Whether this rank's end was reported, and mpirun has begun to end it: SIGCONT, a second before SIGTERM.
  bool said() const { return silent_code >= 0 && continued_us > 0; }

  // The sender of the signal may not wait as long as an agreement takes: the record comes first.
  bool have_agreed(const char* signal) {
    write_record(
        just_stopped() ? "stopped" : signal,
        just_stopped() ? stopped_for() : fmt::format("{} reached rank {}", signal, transport.rank()));
    std::int64_t began = FlightRecord::now_us();
    const std::int64_t at_least = std::chrono::microseconds(options.agreement).count();
    while (!stop && !has_agreed && silent_code < 0 && !is_stalled() &&
           FlightRecord::now_us() - began < std::max(at_least, 3 * longest_us)) {
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
      if (slow_rank >= 0 && !waits_for_another()) began = FlightRecord::now_us();
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

  // mpirun announces the end by SIGCONT, a second ahead: a waiting rank then writes its record early, for
  // itself and for ranks that look for it.
  void announce() {
    const FlightRecord::Entry last = flight()->oldest_open();
    if (foretold || continued_us == 0 || !last.under_way() || last.last_us > continued_us) return;
    write_record("SIGTERM", "received SIGCONT while it waited, which mpirun sends before it ends all ranks");
    foretold = true;
  }

  // While one rank is slow: whether this one waits for another rank, without excuse.
  bool waits_for_another() const {
    const FlightRecord::Entry last = flight()->oldest_open();
    return last.under_way() && last.waits_for >= 0 && last.waits_for != slow_rank;
  }

  // mpirun has announced the end, and this rank waits: for so long that no agreement is possible, or until
  // the time is up.
  bool is_stalled() const {
    const FlightRecord::Entry last = flight()->oldest_open();
    const bool waits = last.under_way() && (slow_rank < 0 || last.waits_for != slow_rank);
    if (!waits || continued_us < caught_us - kAnnouncedUs || just_stopped()) return false;
    const std::int64_t now = FlightRecord::now_us(), idle = now - last.last_us;
    return (continued_us > last.last_us && idle > std::max(kStillUs, 2 * longest_us)) ||
           now - std::max(caught_us.load(), continued_us.load()) > kSpeakUs;
  }

  bool just_stopped() const { return resumed_us > 0 && seconds_since(resumed_us) < 3; }
  std::string stopped_for() const { return fmt::format("it had been stopped for {} s itself", stopped_s); }

  // Also watches the clock: a process that was stopped has lost much of its time.
  void wait_for_signal() {
    for (std::int64_t before = FlightRecord::now_us(); !caught && !stop && !said();) {
      timespec until{};
      clock_gettime(CLOCK_MONOTONIC, &until);
      until.tv_nsec += 200'000'000;
      until.tv_sec += until.tv_nsec / 1'000'000'000;
      until.tv_nsec %= 1'000'000'000;
      sem_clockwait(&wake, CLOCK_MONOTONIC, &until);
      announce();
      const double gap = seconds_since(before);
      before = FlightRecord::now_us();
      if (gap > 1.5) {
        stopped_s = gap;
        resumed_us = before;
      }
    }
  }

  // On the advancing thread.
  void failed(Failure kind, const std::exception& error) {
    if (kind == Failure::deadline) leave(kExitPeerLost, "deadline", [&] { return culprit().text; });
    if (kind == Failure::lost) leave(kExitPeerLost, "lost", [&] { return std::string(error.what()); });
    // The catcher knows it, perhaps all ranks do: an orderly end follows.
    write_record("error", printable(error.what()));
  }

  // Records cover only the job's network: on the other one, this rank knows only the rank it waits for.
  Culprit culprit() const {
    const std::shared_ptr<const FlightRecord> record = flight();
    const FlightRecord& mine = *record;
    const bool of_job = &mine == &transport.session().flight();
    std::int64_t patience = kOthersUs;
    if (caught != 0)
      patience = (foretold ? kForetoldOthersUs : kToldOthersUs) - (FlightRecord::now_us() - caught_us);
    return find_culprit(mine, of_job ? options.folder : "",
                        std::chrono::microseconds(std::max<std::int64_t>(0, patience)));
  }

  // mpirun sends SIGCONT, SIGTERM and SIGKILL to all ranks after one has failed, a second apart. But its
  // sleep between them ends early when another rank exits, so two simultaneous exits would kill a third that
  // has just been signalled. So one rank exits first, and the others wait until they are signalled as well.
  void let_others_end() const {
    const std::int64_t began = FlightRecord::now_us();
    const std::int64_t turn = began + transport.rank() % 8 * kTurnUs;
    const bool by_signal = caught != 0;
    for (;; std::this_thread::sleep_for(std::chrono::milliseconds(2))) {
      const std::int64_t now = FlightRecord::now_us();
      if (now - began > kToldUs) return;
      if (caught != 0) {
        if (now - caught_us > kToldOthersUs + kMarginUs) return;
      } else if (!by_signal && now > turn && continued_us < began - kOthersUs) {
        return;
      }
    }
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

    write_record(reason, {});  // before anything slow
    std::string why = make_line();
    std::replace(why.begin(), why.end(), '\n', ' ');
    why = printable(why);
    const std::string where = path.empty() ? "" : fmt::format(" (record: {})", printable(path.string()));
    const std::string line = fmt::format("rank {}: error: {}{}\n", transport.rank(), why, where);
    std::fflush(stdout);
    // In one write: the lines of all ranks come at about the same time.
    for (std::size_t done = 0; done < line.size();) {
      const ssize_t wrote = ::write(STDERR_FILENO, line.data() + done, line.size() - done);
      if (wrote < 0 && errno != EINTR) break;
      done += static_cast<std::size_t>(std::max<ssize_t>(wrote, 0));
    }
    write_record(reason, why);
    limit_to(std::chrono::milliseconds(kToldUs / 1000) + options.limit);
    let_others_end();
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
  if (before == 0 || impl_->foretold.exchange(false)) impl_->remove_record();  // the run is healthy
  impl_->has_agreed = last;  // the signal may reach this rank after the agreement
  impl_->slow_rank = -1;     // from now on, waiting without agreement is a stall
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
  continued_us = 0;
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
