#include "dist/collectives/wait.h"

#include <string>
#include <thread>

#include "tensor/base/error.h"
#include "tensor/base/trace.h"

namespace athanor::dist {
namespace {

/// A gap between two clock reads of a loop with periods of milliseconds, proof that the process was stopped.
constexpr std::chrono::seconds kStopped{1};

std::string what(const Collective& collective, const WaitOptions& options) {
  return options.bucket < 0 ? std::string(collective.name())
                            : fmt::format("{} of bucket {}", collective.name(), options.bucket);
}

[[noreturn]] void fail(Transport& transport, Failure kind, const PeerLostError& error) {
  if (transport.session().on_failure) transport.session().on_failure(kind, error);
  throw error;
}

}  // namespace

bool StallTimeout::wait(std::int64_t progress, Clock::time_point now) {
  if (now - last_ > kStopped) since_ += now - last_;
  last_ = now;
  if (progress != progress_) {
    progress_ = progress;
    since_ = now;
    idle_ = 0;
  }
  // With more ranks than cores, the awaited rank may need this core.
  if (++idle_ < 64) {
    std::this_thread::yield();
    return true;
  }
  std::this_thread::sleep_for(std::chrono::microseconds(idle_ < 4096 ? 20 : 200));
  return now - since_ < limit_;
}

bool advance(Collective& collective, Transport& transport, const WaitOptions& options) {
  try {
    const bool done = collective.advance();
    if (!done) transport.session().flight().waits_for(collective.waits_for(), options.seq);
    if (done && options.last) transport.session().flight().end(options.seq);
    return done;
  } catch (const PeerLostError& error) {
    fail(transport, Failure::lost,
         PeerLostError(fmt::format("{}: {}", what(collective, options), error.what())));
  } catch (const std::exception& error) {
    if (transport.session().on_failure) transport.session().on_failure(Failure::error, error);
    throw;
  }
}

void finish(Collective& collective, Transport& transport, const WaitOptions& options) {
  const TraceScope traced(collective.name(), "collective");
  StallTimeout patience(options.timeout);
  while (!advance(collective, transport, options)) {
    if (options.stop && options.stop->load(std::memory_order_relaxed)) {
      detail::fail<PeerLostError>("{}: rank {} stops before the collective is done",
                                  what(collective, options), transport.rank());
    }
    if (options.meanwhile && collective.queued()) (*options.meanwhile)();
    if (transport.wait_for_any()) continue;
    if (!patience.wait(collective.progress())) {
      const double seconds = static_cast<double>(options.timeout.count()) / 1000;
      const int missing = collective.waits_for();
      fail(transport, Failure::deadline,
           PeerLostError(
               missing < 0
                   ? fmt::format("{}: must be done within {} s, but rank {} still waits, and the library "
                                 "below does not report for which rank",
                                 what(collective, options), seconds, transport.rank())
                   : fmt::format(
                         "{}: rank {} must answer within {} s, but rank {} has received nothing from it",
                         what(collective, options), missing, seconds, transport.rank())));
    }
  }
}

}  // namespace athanor::dist
