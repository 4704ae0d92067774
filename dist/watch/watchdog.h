#pragma once

#include <chrono>
#include <filesystem>
#include <memory>
#include <string>

#include "dist/transports/transport.h"

namespace athanor::dist {

/// Exit code of a process that ends because another rank is lost.
inline constexpr int kExitPeerLost = 74;

struct WatchdogOptions {
  /// Folder for the record, flight.<rank>.json: the run's, best one that all ranks see. Empty: none is
  /// written.
  std::filesystem::path folder = ".";
  /// How long the ranks have, at least, to agree on a last step after SIGTERM, SIGINT or SIGHUP. Three times
  /// the longest time between two calls of agreed(): the step under way has to end, and votes travel with the
  /// next one. Longer while a checkpoint is saved (takes_long()); 0.4 s where mpirun has announced by SIGCONT
  /// that it ends all, and this rank waits for another. 0: they do not try.
  std::chrono::milliseconds agreement{0};
  /// How long an end may take, with the writing of the record, before the process is ended without.
  std::chrono::milliseconds limit{2000};
};

/// Sees to it that this process ends, and says why, when its rank cannot go on: another one is lost (a
/// deadline of dist/collectives/wait.h, an error of the network), or a signal to end (SIGTERM, SIGINT,
/// SIGHUP) comes and the ranks do not agree in time on what to do. It writes the FlightRecord, then a line to
/// stderr that names the collective, its bucket and the rank that is missing (by the records of the others,
/// where all ranks see the folder), and ends the process with kExitPeerLost, from whatever thread it is in:
/// nothing is unwound, for destructors may wait for that rank. Whoever started the ranks (mpirun,
/// `--devices`) ends the others, who have about a second, and do the same in a thread of its own, even where
/// the rest hangs. Where ranks may agree, the record is written at once, and removed when they have.
///
/// A crash (SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, a stack that overflows in the thread that makes this or
/// pushes buckets) leaves a record, too, and goes on as it would have.
///
/// One per process, made after the transport and before whoever handles signals for himself (SignalGuard
/// calls what was there before). In a job of one rank it does nothing.
class Watchdog {
 public:
  /// A record that an earlier run has left is removed, at once or, where ranks agree, with the first
  /// agreed(). Throws IoError where the folder cannot be written to.
  explicit Watchdog(Transport& transport, const WatchdogOptions& options = {});
  /// The end is near and good: signals do as they did before.
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  /// The one of this process; null where there is none, or one rank.
  static Watchdog* current();

  /// All ranks have just heard of each other; with `last`, of a signal, too, and of the step after which they
  /// end by themselves.
  void agreed(bool last);

  /// `rank` takes as long as it needs: it saves, and the others wait for it. Until all of them have heard
  /// that it is done, and say so (-1), or agreed() is called.
  void takes_long(int rank = 0);

  /// This rank ends by an error of its own, which the caller says: writes the record, if there is anything in
  /// it. From now on a signal ends the process in silence, with that exit code; so does the limit, with
  /// kExitPeerLost. What is no accident (a wrong flag) writes none before the first agreed().
  void stand_down(int exit_code, const std::string& why, bool accident = true);

  /// Record, line ("rank 1: error: " and `why`), end. For an exception that ends this rank alone: the others
  /// wait for it, and must not be waited for.
  [[noreturn]] void end(int exit_code, const std::string& why);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace athanor::dist
