#pragma once  // Explained in docs/when_a_rank_dies.md.

#include <chrono>
#include <filesystem>
#include <memory>
#include <string>

#include "dist/transports/transport.h"

namespace athanor::dist {

/// Exit code of a process that ends because another rank is lost.
inline constexpr int kExitPeerLost = 74;

struct WatchdogOptions {
  /// Folder for the record, flight.<rank>.json: the run's, preferably visible to all ranks. Empty: no record.
  std::filesystem::path folder = ".";
  /// Minimum time for ranks to agree on a last step after SIGTERM, SIGINT or SIGHUP. The limit is three times
  /// the longest interval between calls of agreed(): the current step must end, and votes are sent with the
  /// next one. It is longer while a checkpoint is saved (set_slow_rank()); a rank that has waited for so long
  /// already does not wait again. 0: no attempt to agree. If the ranks have never agreed() so far, nothing is
  /// lost, and the signal then ends the process without a word.
  std::chrono::milliseconds agreement{0};
  /// Maximum time to end, including writing the record, before the process is ended without it.
  std::chrono::milliseconds limit{2000};
  /// A gap between two looks at the clock that proves that the process was stopped.
  std::chrono::milliseconds stopped{1500};
};

/// Ends this process, with a reason, when its rank cannot continue: another rank is lost (a deadline of
/// dist/collectives/wait.h, Transport::lost(), a network error), or a signal to end (SIGTERM, SIGINT, SIGHUP)
/// arrives and the ranks do not agree in time on a last step. It writes the FlightRecord, then a line to
/// stderr with the collective, its bucket and the rank that this one waits for; `athanor flight` finds the
/// culprit in the records of all. Then it ends the process with kExitPeerLost from any thread, without
/// unwinding, because destructors might wait for that rank. The launcher (mpirun, `--devices`) ends the other
/// ranks, which do the same in a separate thread, even if the rest hangs. If ranks may agree, the record is
/// written at once and removed once they have.
///
/// A crash (SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, a stack overflow in the thread that creates this or
/// advances buckets) also leaves a record, and then proceeds as usual.
///
/// One per process, created after the transport and before other signal handlers (SignalGuard calls the
/// previous handlers). Does nothing in a job of one rank.
class Watchdog {
 public:
  /// Removes the record of an earlier run, at once or, if ranks agree, at the first agreed(). Throws IoError
  /// if the folder is not writable.
  explicit Watchdog(Transport& transport, const WatchdogOptions& options = {});
  /// For a normal end: restores the previous signal handlers.
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  /// The process's watchdog; null if there is none, or one rank.
  static Watchdog* current();
  /// The signal to end that has reached it and is not agreed on yet; 0: none. For handlers that come later.
  static int signal();

  /// All ranks have just heard from each other; with `last`, they have also agreed on a signal and on their
  /// last step.
  void agreed(bool last);

  /// `rank` may take any time: the others wait while it saves. Ends when all ranks know that it is done and
  /// pass -1, or by agreed().
  void set_slow_rank(int rank = 0);

  /// This rank ends by its own error, which the caller reports: writes the record, if it has entries. From
  /// now on a signal ends the process silently with that exit code; so does the limit, with kExitPeerLost.
  /// With `accident` false (a wrong flag), no record is written before the first agreed().
  void report_own_failure(int exit_code, const std::string& why, bool accident = true);

  /// Writes the record and a line ("rank 1: error: " and `why`), then ends. For an exception on this rank
  /// alone: the others wait for it, and it must not wait for them.
  [[noreturn]] void end(int exit_code, const std::string& why);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace athanor::dist
