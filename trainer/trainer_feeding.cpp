// How a Trainer gets its samples, and what it says about the time that takes.

#include <algorithm>

#include "data/detail/cores.h"
#include "tensor/error.h"
#include "trainer/progress.h"
#include "trainer/trainer.h"

namespace athanor {
namespace {

// Images of a set in files that mean and deviation are measured on.
constexpr std::int64_t kMeasured = 4096;

}  // namespace

void Trainer::make_loaders(const Dataset& train, const Dataset& held_out) {
  ATH_CHECK(train.size() >= ranks_.world_size(),
            "trainer: there must be a sample to train on for each of {} ranks, but there are {}",
            ranks_.world_size(), train.size());
  const bool whole_batches = train.size() >= config_.batch_size;
  LoaderOptions options = feeding(train);
  options.batch_size = config_.batch_size;
  options.shuffle = options.training = true;
  options.order = config_.order;
  options.drop_last = whole_batches;
  options.epochs = config_.epochs;
  train_ = std::make_unique<Loader>(train, options);
  options = feeding(held_out);
  options.batch_size =
      config_.val_batch_size > 0 ? config_.val_batch_size : std::max<std::int64_t>(config_.batch_size, 256);
  held_out_ = std::make_unique<Loader>(held_out, options);
  resident_ = train.resident();
  pixels_ = config_.pixel_mean.empty()
                ? measure(train, resident_ ? train.size() : kMeasured, config_.bad_samples.skip)
                : Normalization{config_.pixel_mean, config_.pixel_stddev};
}

/// What both loaders have in common.
LoaderOptions Trainer::feeding(const Dataset& data) {
  LoaderOptions options;
  options.seed = config_.seed;
  options.rank = ranks_.rank();
  options.world_size = ranks_.world_size();
  if (config_.local_ranks > 1) options.cores = std::max(1, detail::usable_cores() / config_.local_ranks);
  options.workers = config_.workers;
  options.prefetch = config_.prefetch;
  options.device = config_.device;
  options.data_on_device = config_.data_on_device && data.resident();
  options.bad_samples = config_.bad_samples;
  // A callback is told on this thread, inside next().
  options.on_warning = [this](const std::string& line) { tell(line); };
  return options;
}

void Trainer::tell(const std::string& note) {
  for (auto& callback : callbacks_) callback->on_note(*this, note);
}

std::string Trainer::describe_feeding() const {
  const LoaderStats now = train_->stats();
  if (train_->options().data_on_device) return "data on the device";
  if (now.threads > 0) {
    const bool fixed = train_->options().workers != LoaderOptions::kAuto;
    return fmt::format("data read by {} thread{}{}", now.workers, now.workers == 1 ? "" : "s",
                       fixed ? "" : fmt::format(" (auto: at most {})", now.threads));
  }
  return resident_ ? "data in memory" : "data read by the training thread";
}

void Trainer::next_batch(Batch& batch) {
  const LoaderWaits before = train_->waits();
  train_->next(batch);
  const LoaderWaits& after = train_->waits();
  clock_.lap(at_.times.data);
  const double copy_s = after.copy_s - before.copy_s, device_s = after.device_s - before.device_s;
  at_.times.copy += copy_s;
  at_.times.device += device_s;
  at_.times.data -= copy_s + device_s;
}

void Trainer::report_times(EpochReport& report) {
  report.times = at_.times - times_before_;
  report.times.validation = 0;
  report.other_s = std::max(part_s_ - report.times.step() - report.times.saving, 0.0);
  report.loader = fed_;
  const std::int64_t steps = std::max<std::int64_t>(at_.attempted - steps_before_, 1);
  report.bottleneck = find_bottleneck(report.times, {.device = config_.device,
                                                     .resident = resident_,
                                                     .loader = fed_,
                                                     .prefetch = config_.prefetch,
                                                     .threads = cpu_context().threads(),
                                                     .cores = detail::usable_cores(),
                                                     .per_step_s = part_s_ / static_cast<double>(steps)});
  const LoaderStats held_out = held_out_->stats();
  double skipped[] = {static_cast<double>(fed_.skipped), static_cast<double>(held_out.skipped)};
  ranks_.add_up(skipped);
  report.loader.skipped = static_cast<std::int64_t>(skipped[0]);
  const auto count = [&](const LoaderStats& stats, double of_all, const char* of) {
    if (of_all == 0) return;
    report.notes.push_back(fmt::format(
        "bad samples: {} of {} replaced, the first: {}", with_commas(static_cast<std::int64_t>(of_all)), of,
        stats.first_skipped.empty() ? "one of another rank" : stats.first_skipped));
  };
  count(fed_, skipped[0], "training");
  count(held_out, skipped[1], "validation");
}

}  // namespace athanor
