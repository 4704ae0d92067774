#include "dist/wait.h"

#include <string>
#include <thread>

#include "tensor/error.h"

namespace athanor::dist {
namespace {

std::string what(const Collective& collective, const WaitOptions& options) {
  return options.bucket < 0 ? std::string(collective.name())
                            : fmt::format("{} of bucket {}", collective.name(), options.bucket);
}

}  // namespace

bool Patience::wait(std::int64_t progress) {
  if (progress != progress_) {
    progress_ = progress;
    since_ = Clock::now();
    idle_ = 0;
  }
  // With more ranks than cores, the one that is waited for needs this core.
  if (++idle_ < 64) {
    std::this_thread::yield();
    return true;
  }
  std::this_thread::sleep_for(std::chrono::microseconds(idle_ < 4096 ? 20 : 200));
  return Clock::now() - since_ < limit_;
}

bool push(Collective& collective, const WaitOptions& options) {
  try {
    return collective.advance();
  } catch (const PeerLostError& error) {
    detail::fail<PeerLostError>("{}: {}", what(collective, options), error.what());
  }
}

void finish(Collective& collective, const Transport& transport, const WaitOptions& options) {
  Patience patience(options.timeout);
  while (!push(collective, options)) {
    if (options.stop && options.stop->load(std::memory_order_relaxed)) {
      detail::fail<PeerLostError>("{}: rank {} ends before it is done", what(collective, options),
                                  transport.rank());
    }
    if (!patience.wait(collective.progress())) {
      const double seconds = static_cast<double>(options.timeout.count()) / 1000;
      if (collective.waits_for() < 0) {
        detail::fail<PeerLostError>(
            "{}: must be done within {} s, but rank {} waits, and the library below does not say for whom",
            what(collective, options), seconds, transport.rank());
      }
      detail::fail<PeerLostError>(
          "{}: rank {} must answer within {} s, but rank {} has heard nothing from it",
          what(collective, options), collective.waits_for(), seconds, transport.rank());
    }
  }
}

}  // namespace athanor::dist
