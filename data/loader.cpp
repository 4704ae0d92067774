#include "data/loader.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <optional>
#include <thread>
#include <utility>

#include "data/detail/batch_readers.h"
#include "data/detail/device_feed.h"
#include "data/detail/resident_images.h"
#include "data/detail/worker_tuner.h"
#include "tensor/base/cores.h"
#include "tensor/base/error.h"

namespace athanor {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::microseconds;

// Poll intervals while waiting: rarely for threads, which notify; often for copies, which do not.
constexpr microseconds kPollThreads{200'000}, kPollCopies{50};
constexpr int kSpins = 64;  // about as long as one sleep

double seconds(Clock::duration time) {
  return std::chrono::duration<double>(time).count();
}

void check_weights(const std::vector<double>& weights, std::int64_t samples) {
  ATH_CHECK(std::ssize(weights) == samples, "loader: each of {} samples must have a weight, but {} have one",
            samples, weights.size());
  double sum = 0;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    ATH_CHECK(
        std::isfinite(weights[i]) && weights[i] >= 0,
        "loader: the weight of a sample must be a finite number of at least 0, but that of sample {} is {}",
        i, weights[i]);
    sum += weights[i];
  }
  ATH_CHECK(std::isfinite(sum) && sum > 0,
            "loader: weights of samples must have a finite sum above 0, but theirs is {}", sum);
}

LoaderOptions checked(const Dataset& data, LoaderOptions options) {
  ATH_CHECK(data.spec().bytes() > 0,
            "loader: images must have one size, but theirs is {}x{}x{}: a DecodedDataset brings them to one",
            data.spec().height, data.spec().width, data.spec().channels);
  check_fields(data.fields());
  ATH_CHECK(data.size() > 0, "loader: the data set must hold at least one sample, but is empty");
  ATH_CHECK(options.batch_size > 0, "loader: batch size must be at least 1, but got {}", options.batch_size);
  ATH_CHECK(options.world_size >= 1 && options.rank >= 0 && options.rank < options.world_size,
            "loader: rank must be in [0, {}), but got {}", options.world_size, options.rank);
  ATH_CHECK(options.workers >= LoaderOptions::kAuto && options.workers <= 1024 && options.prefetch >= 1,
            "loader: workers must be kAuto or in [0, 1024] and prefetch at least 1, but got {} and {}",
            options.workers, options.prefetch);
  ATH_CHECK(options.page_samples >= 1 && options.window_pages >= 1,
            "loader: a page must have at least 1 sample and a window 1 page, but got {} and {}",
            options.page_samples, options.window_pages);
  if (options.weights) check_weights(*options.weights, data.size());
  ATH_CHECK(!options.weights || (options.shuffle && options.order == Order::random),
            "loader: samples with weights must be shuffled in the order random, but the order is {}",
            options.shuffle ? name_of(options.order) : "that of the data set");
  ATH_CHECK(!options.data_on_device || data.resident(),
            "loader: data_on_device needs a data set in memory; this one reads files");
  options.batch_size = std::min(options.batch_size, data.size());
  if (options.bad_samples.limit < 0) options.bad_samples.limit = std::max<std::int64_t>(data.size() / 100, 1);
  return options;
}

detail::BatchPlan plan_of(const Dataset& data, const LoaderOptions& options) {
  return {data.size(), options.batch_size, options.rank, options.world_size, options.drop_last};
}

struct Threads {
  int made, awake;
};

/// Number of threads to create, and to start with.
Threads threads_for(const Dataset& data, const LoaderOptions& options) {
  if (data.resident() && (options.workers == LoaderOptions::kAuto || options.data_on_device)) return {0, 0};
  if (options.workers != LoaderOptions::kAuto) return {options.workers, options.workers};
  const int cores = options.cores > 0 ? options.cores : usable_cpus();
  return {std::min(2 * cores, 64), std::clamp(cores - 1, 1, 64)};
}

int slots_of(const Threads& threads, const LoaderOptions& options) {
  return threads.made == 0 && options.device.is_cpu() ? 1 : options.prefetch;
}

}  // namespace

struct Loader::Impl {
  Impl(const Dataset& set, const LoaderOptions& wanted)
      : data(set),
        options(checked(set, wanted)),
        plan(plan_of(set, options)),
        threads(threads_for(set, options)),
        resident(options.data_on_device ? std::make_unique<detail::ResidentImages>(set, options.device)
                                        : nullptr),
        readers(resident ? *resident : set, options, plan, threads.made, threads.awake,
                slots_of(threads, options)),
        tuner(options.workers == LoaderOptions::kAuto ? threads.made : 0, threads.awake) {
    if (options.device.is_cuda())
      feed.emplace(options.device, readers.slots(), readers.layout(), options.jpeg);
    std::vector<FieldSpec> others;
    for (const FieldSpec& field : readers.layout().fields) {
      if (field.name != "image" && field.name != "label") others.push_back(field);
    }
    if (!others.empty()) fields = std::make_shared<const std::vector<FieldSpec>>(std::move(others));
  }

  void seek(std::int64_t to_epoch, std::int64_t to_step);
  void release();
  void send();
  void reclaim();
  void wait();
  void wait_for_threads();
  void check();
  void hand_out(Batch& batch);
  void tune();
  void warn(const std::string& line) const {
    if (options.on_warning) options.on_warning(line);
  }

  const Dataset& data;
  const LoaderOptions options;
  const detail::BatchPlan plan;
  const Threads threads;
  const std::unique_ptr<detail::ResidentImages> resident;
  detail::BatchReaders readers;
  std::optional<detail::DeviceFeed> feed;
  detail::WorkerTuner tuner;
  std::shared_ptr<const std::vector<FieldSpec>> fields;  // besides image and label

  // The caller's position, and that step's number: lower numbers are free, or soon will be.
  std::int64_t epoch = 0, step = 0, number = 0;
  bool begun = false, holds = false, first_wait = true;
  std::int64_t sent = 0, reclaimed = 0;  // numbers: copies queued, host slots released

  LoaderStats stats;
  detail::BatchReaders::Work work_before;
};

// Moves the threads, unless they are already at that position.
void Loader::Impl::seek(std::int64_t to_epoch, std::int64_t to_step) {
  const bool same_every_epoch = !options.training && !options.shuffle && options.epochs == 0;
  const bool at_end = step == plan.steps() && to_step == 0 && readers.goes_on_after(epoch);
  const bool here = begun && ((to_step == step && (to_epoch == epoch || (same_every_epoch && step == 0))) ||
                              (at_end && (to_epoch == epoch + 1 || same_every_epoch)));
  epoch = to_epoch;
  step = to_step;
  if (here) return;
  begun = true;
  // Copies still in the queue read the slots: of batches the caller has, or of what a kernel must find valid.
  for (std::int64_t i = reclaimed; feed && i < sent; ++i) {
    while (!feed->arrived(i)) std::this_thread::sleep_for(kPollCopies);
  }
  readers.seek(epoch, step);
  number = sent = reclaimed = 0;
}

// Invalidates the caller's batch.
void Loader::Impl::release() {
  if (std::exchange(holds, false) && feed) feed->release(number - 1);
  if (feed) {
    reclaim();
  } else {
    readers.free_below(number);
  }
}

// Not before the caller has learned the outcome of the step's samples.
void Loader::Impl::reclaim() {
  while (reclaimed < std::min(sent, number) && feed->arrived(reclaimed)) ++reclaimed;
  readers.free_below(reclaimed);
}

// Sends complete steps in order; a device slot is free once its batch was released.
void Loader::Impl::send() {
  while (sent < number + readers.slots() && readers.complete(sent)) {
    // After the last epoch there are no rows to send.
    detail::Slot& slot = readers.of(sent);
    const std::int64_t refused = feed->refused();
    const auto undecoded = feed->send(sent, slot, readers.rows(sent));
    if (refused == 0 && feed->refused() > 0)
      warn(fmt::format("loader: {}; such files are decoded on the CPU, which takes longer",
                       feed->first_refusal()));
    if (undecoded && (slot.failed.row < 0 || undecoded->row < slot.failed.row)) {
      const std::int64_t sample = slot.tensors.samples.data<std::int64_t>()[undecoded->row];
      slot.failed = {undecoded->row,
                     fmt::format("loader: {}: read: {}; to replace such samples, use --decode cpu and "
                                 "--bad-samples skip",
                                 readers.name_of(sample), undecoded->why),
                     nullptr};
    }
    ++sent;
  }
}

void Loader::Impl::wait() {
  const Clock::time_point began = Clock::now();
  double device_s = 0;
  if (feed) {
    send();
    reclaim();
    if (!readers.has_slot(number)) {  // the device's queue holds all slots
      for (int spins = 0; !readers.has_slot(number); ++spins) {
        if (spins >= kSpins) std::this_thread::sleep_for(kPollCopies);
        reclaim();
      }
      device_s = seconds(Clock::now() - began);
    }
  }
  const Clock::time_point asked = feed ? Clock::now() : began;
  if (threads.made == 0) {
    if (!readers.complete(number)) readers.fill_here(number);
  } else if (!readers.complete(number)) {
    wait_for_threads();
  }
  const Clock::time_point there = Clock::now();
  stats.waits.data_s += seconds(there - asked);
  if (std::exchange(first_wait, false))
    stats.waits.opening_s = std::min(readers.opening_s(), seconds(there - asked));
  stats.waits.device_s += device_s;
  if (!feed) return;
  send();
  stats.waits.copy_s += seconds(Clock::now() - there) + seconds(asked - began) - device_s;
}

void Loader::Impl::wait_for_threads() {
  const Clock::time_point began = Clock::now();
  bool warned = false;
  while (!readers.wait(number, feed && reclaimed < sent ? kPollCopies : kPollThreads)) {
    if (feed) reclaim();
    if (warned || seconds(Clock::now() - began) < options.stuck_after_s) continue;
    const std::string line = readers.stuck(options.stuck_after_s);
    if (line.empty()) continue;
    warned = true;
    warn(fmt::format("loader: step {} of epoch {} is waiting: {}; is the disk or the network slow?", step + 1,
                     epoch + 1, line));
  }
}

void Loader::Impl::check() {
  const detail::Slot& slot = readers.of(number);
  if (slot.failed.row >= 0) {
    if (slot.failed.fatal) std::rethrow_exception(slot.failed.fatal);
    throw IoError(slot.failed.line);
  }
  if (slot.harmless_ones > 0 && stats.harmless == 0) stats.first_harmless = slot.harmless.line;
  stats.harmless += slot.harmless_ones;
  if (slot.replacements == 0) return;
  if (stats.skipped + slot.replacements > options.bad_samples.limit) {
    detail::fail<IoError>("{}; the epoch now exceeds its limit of {} bad samples (--bad-samples skip:LIMIT)",
                          slot.replaced.line, options.bad_samples.limit);
  }
  if (stats.skipped == 0) stats.first_skipped = slot.replaced.line;
  stats.skipped += slot.replacements;
}

void Loader::Impl::hand_out(Batch& batch) {
  const std::int64_t rows = plan.rows_of(step).count;
  const detail::SlotTensors& from = feed ? feed->take(number) : readers.of(number).tensors;
  const auto first = [&](const Tensor& all) {
    all.bump_version();
    if (all.shape()[0] == rows) return all;
    Shape shape = all.shape();
    shape[0] = rows;
    return all.view_as_strided(shape, all.strides(), 0);
  };
  batch.labels = from.labels.defined() ? first(from.labels) : Tensor();
  batch.samples = first(from.samples);
  batch.images = resident ? resident->images() : first(from.images);
  batch.rows = resident ? batch.samples : Tensor();
  batch.id = options.training ? epoch * plan.steps() + step : -1;
  batch.views = 1;
  batch.fields = fields;
  for (std::size_t i = 0; fields && i < fields->size(); ++i) batch.more[i] = first(from.more[i]);
}

// Wakes and parks existing threads.
void Loader::Impl::tune() {
  if (tuner.rests()) return;
  const int awake = tuner.step({.wall_s = seconds(Clock::now().time_since_epoch()),
                                .waited_s = stats.waits.data_s,
                                .busy_s = readers.work().busy_s});
  if (awake != readers.awake()) readers.set_awake(awake);
}

// ----------------------------------------------------------------------------------------------------------

const Tensor& Batch::all_views(std::string_view field) const {
  if (field == "image") {
    ATH_CHECK(!rows.defined(),
              "batch: 'image' needs a prepared batch, because this one holds the images of all samples on "
              "the device; call prepare() first");
    return images;
  }
  if (field == "label" && labels.defined()) return labels;
  for (std::size_t i = 0; fields && i < fields->size(); ++i) {
    if ((*fields)[i].name == field) return more[i];
  }
  std::string names = labels.defined() ? "'image', 'label'" : "'image'";
  for (std::size_t i = 0; fields && i < fields->size(); ++i)
    names += fmt::format(", '{}'", (*fields)[i].name);
  detail::fail<>("batch: field must be one of {}, but is '{}'", names, field);
}

Tensor Batch::view(std::string_view field, std::int64_t number) const {
  const Tensor& all = all_views(field);
  ATH_CHECK(number >= 0 && number < views, "batch: view of '{}' must be in [0, {}), but got {}", field, views,
            number);
  if (all.shape()[0] == size()) return all;
  Shape shape = all.shape();
  shape[0] = size();
  return all.view_as_strided(shape, all.strides(), number * shape.numel());
}

Loader::Loader(const Dataset& data, const LoaderOptions& options)
    : impl_(std::make_unique<Impl>(data, options)) {}

Loader::~Loader() = default;

void Loader::start_epoch(std::int64_t epoch, std::int64_t delivered) {
  Impl& at = *impl_;
  ATH_CHECK(epoch >= 0, "loader: epoch must be at least 0, but got {}", epoch);
  const bool ends_a_batch = delivered % at.plan.batch == 0 || delivered == samples_per_epoch();
  ATH_CHECK(
      delivered >= 0 && delivered <= samples_per_epoch() && ends_a_batch,
      "loader: an epoch of {} samples must resume at the end of a batch of {}, but got {} delivered samples",
      samples_per_epoch(), at.plan.batch, delivered);
  at.release();
  at.seek(epoch, (delivered + at.plan.batch - 1) / at.plan.batch);
  at.stats = {};
  at.work_before = at.readers.work();
  at.tuner.pause();
}

bool Loader::next(Batch& batch) {
  Impl& at = *impl_;
  at.release();
  if (at.step == at.plan.steps()) return false;
  if (!at.begun) at.seek(at.epoch, at.step);
  at.wait();
  at.check();
  at.hand_out(batch);
  ++at.step;
  ++at.number;
  at.holds = true;
  at.tune();
  return true;
}

std::int64_t Loader::samples_per_epoch() const {
  return impl_->plan.delivered();
}

std::int64_t Loader::batches_per_epoch() const {
  return impl_->plan.steps();
}

std::int64_t Loader::samples() const {
  return impl_->data.size();
}

std::int64_t Loader::epoch() const {
  return impl_->epoch;
}

const ImageSpec& Loader::spec() const {
  return impl_->data.spec();
}

const LoaderOptions& Loader::options() const {
  return impl_->options;
}

std::int64_t Loader::memory_bytes() const {
  return impl_->readers.memory_bytes();
}

const LoaderWaits& Loader::waits() const {
  return impl_->stats.waits;
}

LoaderStats Loader::stats() const {
  LoaderStats stats = impl_->stats;
  const detail::BatchReaders::Work now = impl_->readers.work();
  const double capacity = now.capacity_s - impl_->work_before.capacity_s;
  if (capacity > 0) stats.busy = (now.busy_s - impl_->work_before.busy_s) / capacity;
  stats.workers = impl_->readers.awake();
  stats.threads = impl_->readers.threads();
  return stats;
}

}  // namespace athanor
