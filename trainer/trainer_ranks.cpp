// What a Trainer decides together with the other ranks.

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

#include "data/detail/cores.h"
#include "dist/watch/watchdog.h"
#include "trainer/progress.h"
#include "trainer/trainer.h"

namespace athanor {

// Ranks must leave the same loop at the same step: whatever may end training is decided here, from what all
// of them have seen. One rank decides alone, at no cost.
void Trainer::agree(bool out_of_time) {
  Ranks::Wish wish{.signal = signals_->caught(), .out_of_time = out_of_time};
  if (stopping_) wish.stop = static_cast<std::int32_t>(reason_);
  const Ranks::Wish all = ranks_.agree(wish);
  if (auto* watchdog = dist::Watchdog::current()) watchdog->agreed(all.signal != 0);
  if (all.stop >= 0 && !(stopping_ && reason_ == static_cast<StoppedBy>(all.stop))) {
    stopping_ = true;
    reason_ = static_cast<StoppedBy>(all.stop);
    why_stopped_ = fmt::format("rank {} has stopped it", all.from);
  }
  if (all.signal != 0) stop(StoppedBy::signal);
  if (all.out_of_time != 0)
    stop(StoppedBy::max_time, fmt::format("--max-time is over, after {}", duration(seconds_since_start())));
}

// What ranks must have alike, or they would part sooner or later: besides what a run's results depend on,
// whatever decides which messages there are. What is a rank's own business (threads, device, workers, where
// files lie) is not compared. Known before ranks do anything together.
StateDict Trainer::shared_settings() const {
  const auto given = [](bool is) { return is ? "given" : "not given"; };
  StateDict shared;
  shared.set("strategy", std::string(name_of(ranks_.strategy())));
  shared.set("algorithm", std::string(dist::name_of(config_.collectives.algorithm)));
  shared.set("sync_bn", fmt::format("{}", config_.sync_bn));
  shared.set("fast_dev_run", fmt::format("{}", config_.fast_dev_run));
  shared.set("checkpoint_dir", std::string(given(!config_.checkpoint_dir.empty())));
  shared.set("checkpoint_every", fmt::format("{}", config_.checkpoint_every));
  shared.set("resume", std::string(given(!config_.resume.empty())));
  shared.set("patience_at_floor", fmt::format("{}", config_.patience_at_floor));
  for (const StateDict::Entry& entry : settings()) {
    if (!shared.contains(entry.name)) shared.set(entry.name, entry.value);
  }
  return shared;
}

// For who looks for an error. Once for each rank: layers that a model leaves out by chance are many.
void Trainer::name_unused() {
  if (!config_.collectives.compare_calls) return;
  for (int rank = 0; rank < ranks_.world_size(); ++rank) {
    char& named = named_[static_cast<std::size_t>(rank)];
    const std::vector<std::string> names = named ? std::vector<std::string>() : ranks_.unused(rank);
    if (names.empty()) continue;
    named = 1;
    tell(fmt::format("rank {}: step {} had no gradient for {}", rank, at_.attempted, list_names(names)));
  }
}

/// Of the CPU for this rank; 0: as they are.
int Trainer::threads() const {
  if (config_.threads > 0) return config_.threads;
  return config_.local_ranks > 1 ? std::max(1, detail::usable_cores() / config_.local_ranks) : 0;
}

// The OpenMP library ends the process where it gets no thread: here it is an error that is said.
void Trainer::try_threads(int count) {
  std::atomic<bool> over{false};
  std::vector<std::jthread> team;
  const struct Over {
    std::atomic<bool>& over;
    ~Over() { over = true, over.notify_all(); }
  } at_the_end{over};
  for (int i = 1; i < count; ++i) team.emplace_back([&] { over.wait(false); });
}

}  // namespace athanor
