// Explained in docs/a_run_from_flag_to_file.md.
#include "trainer/data_pipeline.h"

#include <algorithm>
#include <cstring>
#include <sstream>
#include <utility>

#include "autograd/op_observer.h"
#include "data/defects.h"
#include "data/detail/batch_plan.h"
#include "data/device_jpeg.h"
#include "data/mix.h"
#include "data/repeated.h"
#include "data/sample_weights.h"
#include "kernels/cpu/context.h"
#include "tensor/base/cores.h"
#include "tensor/base/error.h"
#include "tensor/base/printable.h"
#include "tensor/io/regular_file.h"
#include "trainer/readable.h"

namespace athanor {
namespace {

// Number of images of a set in files for measuring mean and deviation.
constexpr std::int64_t kMeasured = 4096;

std::string describe(const ImageSpec& spec) {
  return fmt::format("{}x{}x{} with {}", spec.height, spec.width, spec.channels, spec.classes);
}

std::string names_of(const Dataset& data) {
  std::string names;
  for (const FieldSpec& field : data.fields()) {
    names +=
        fmt::format("{}{} {} {}", names.empty() ? "" : ", ", field.name, name_of(field.dtype), field.shape);
  }
  return names;
}

/// Those that both data sets must have: only training uses weights.
std::vector<FieldSpec> needed_fields(const Dataset& data) {
  std::vector<FieldSpec> fields = data.fields();
  std::erase_if(fields, [](const FieldSpec& field) { return field.name == kWeightField; });
  return fields;
}

void check_fits(const Dataset& train, const Dataset& held_out) {
  ATH_CHECK(train.size() > 0 && held_out.size() > 0,
            "trainer: both data sets must hold samples, but got {} for training and {} for testing",
            train.size(), held_out.size());
  ATH_CHECK(train.spec() == held_out.spec(),
            "trainer: both data sets must have the same image shape and number of classes, but got {} and {}",
            describe(train.spec()), describe(held_out.spec()));
  ATH_CHECK(needed_fields(train) == needed_fields(held_out),
            "trainer: samples of both data sets must have the same fields, but got {} and {}",
            names_of(train), names_of(held_out));
}

/// Every rank reads its share of the samples, and all throw the same list.
void check_readable(ParallelStrategy& strategy, int threads, const Dataset& train, const Dataset* held_out) {
  std::int64_t samples = 0;
  std::string mine;  // a line for each
  for (const Dataset* const data : {&train, held_out != &train ? held_out : nullptr}) {
    if (!data) continue;
    samples += data->size();
    const Defects found =
        find_defects(data->size(), [&](std::int64_t index) { return data->check_sample(index); },
                     {.threads = threads, .first = strategy.rank(), .step = strategy.world_size()});
    for (const Defects::Sample& one : found.unreadable) mine += printable(one.what) + '\n';
  }
  std::vector<std::string> all;
  for (const std::string& lines : strategy.gather(mine)) {
    std::istringstream in(lines);
    for (std::string line; std::getline(in, line);) all.push_back(line);
  }
  if (!all.empty()) throw UnreadableSamplesError(samples, all);
}

std::vector<SizeFrom> sizes_of(const TrainerConfig& config) {
  return config.image_sizes.empty() ? std::vector<SizeFrom>(1) : config.image_sizes;
}

/// The data set with images of that size; without one, as they are.
std::shared_ptr<const Dataset> of_size(const Dataset& data, const ImageSize& size) {
  if (size == ImageSize{} || size == ImageSize{data.spec().height, data.spec().width})
    return {std::shared_ptr<void>(), &data};
  std::shared_ptr<const Dataset> resized = data.with_size(size.height, size.width);
  ATH_CHECK(resized,
            "--image-size: needs images that are resized when read to change their size by epoch, but "
            "these have one size");
  return resized;
}

/// LoaderOptions::weights.
std::shared_ptr<const std::vector<double>> weights_of(const TrainerConfig& config, const Dataset& train) {
  if (config.sampler == Sampler::none) return {};
  return std::make_shared<const std::vector<double>>(
      config.sampler == Sampler::balanced
          ? balanced_sample_weights(train)
          : stored_sample_weights(train, "--sampler weights", config.bad_samples.keeps_going()));
}

int cores_of_rank(const TrainerConfig& config) {
  return std::max(1, usable_cpus() / std::max(config.local_ranks, 1));
}

}  // namespace

DataPipeline::DataPipeline(const TrainerConfig& config, ParallelStrategy& strategy, const Dataset& train,
                           const Dataset* held_out, const std::function<void(const std::string&)>& on_note)
    : config_(config), strategy_(strategy), resident_(train.resident()), train_id_(data_id(train)) {
  unused_ = train.unused();
  if (held_out && &held_out->origin() != &train.origin()) add_unused(unused_, held_out->unused());
  add_unused(unused_, config.unused_data);
  ATH_CHECK(!config.strict_data || unused_.empty(),
            "--strict-data: all of the data must be used, but not used are {}", text_of(unused_));
  // Validation images of a size of their own are compared at that of the training images.
  const std::shared_ptr<const Dataset> at_size =
      held_out && config.val_image_size != ImageSize{}
          ? held_out->with_size(train.spec().height, train.spec().width)
          : nullptr;
  check_fits(train, at_size ? *at_size : held_out ? *held_out : train);
  check_fields(config.augment, train.fields());
  ATH_CHECK(train.size() >= strategy.world_size(),
            "trainer: each of {} ranks needs at least one training sample, but there are {}",
            strategy.world_size(), train.size());
  if (config.bad_samples.list) check_readable(strategy, cores_of_rank(config), train, held_out);
  of_train_ = options(config, strategy, train, on_note);
  of_train_.batch_size = config.batch_size;
  of_train_.shuffle = config.overfit_batches == 0;
  of_train_.training = true;
  of_train_.order = config.order;
  of_train_.weights = weights_of(config, train);
  of_train_.drop_last = train.size() >= config.batch_size;
  if (config.repeated_aug > 1) {  // the copies of an image are a page, and stay together
    of_train_.order = Order::page_random;
    of_train_.page_samples = config.repeated_aug;
    of_train_.window_pages = 1;
  }
  for (const SizeFrom& size : sizes_of(config)) {
    std::shared_ptr<const Dataset> images = of_size(train, size.size);
    if (config.repeated_aug > 1) images = std::make_shared<Repeated>(std::move(images), config.repeated_aug);
    stretches_.push_back({size.epoch, std::move(images)});
  }
  train_ = make_train();
  if (held_out && config.limit_val_batches.count != 0) {
    LoaderOptions of_held_out = options(config, strategy, *held_out, on_note);
    of_held_out.batch_size = config.validated_at_once();
    held_out_ = std::make_unique<Loader>(*held_out, of_held_out);
    held_out_id_ = data_id(*held_out);
  }
  const std::int64_t means = std::ssize(config.pixel_mean), deviations = std::ssize(config.pixel_stddev);
  ATH_CHECK(means == deviations && (means == 0 || means == train.spec().channels),
            "--mean, --std: must have a number each for the images' {} channels, but got {} and {}",
            train.spec().channels, means, deviations);
  pixels_ = config.pixel_mean.empty()
                ? measure(train, resident_ ? train.size() : kMeasured, config.bad_samples.skip)
                : Normalization{config.pixel_mean, config.pixel_stddev};
  const auto add_preprocess = [&](const ImageSpec& spec) {
    if (std::ranges::find(preprocess_, spec, &Preprocess::spec) != preprocess_.end()) return;
    preprocess_.emplace_back(spec, pixels_, compute_dtype(config.precision), config.device, config.augment,
                             config.seed, config.views);
  };
  for (const Stretch& stretch : stretches_) add_preprocess(stretch.images->spec());
  if (held_out) add_preprocess(held_out->spec());
}

std::unique_ptr<Loader> DataPipeline::make_train() const {
  LoaderOptions options = of_train_;
  options.epochs = config_.epochs;
  if (stretch_ + 1 < stretches_.size())
    options.epochs = std::min(options.epochs, stretches_[stretch_ + 1].first);
  return std::make_unique<Loader>(*stretches_[stretch_].images, options);
}

const Preprocess& DataPipeline::preprocess_of(const Batch& batch) const {
  for (const Preprocess& one : preprocess_) {
    const ImageSpec& takes = one.spec();
    if (takes.height == batch.images.dim(1) && takes.width == batch.images.dim(2)) return one;
  }
  return preprocess_.front();  // which says what images it takes
}

/// Options shared by both loaders.
LoaderOptions DataPipeline::options(const TrainerConfig& config, const ParallelStrategy& strategy,
                                    const Dataset& data,
                                    const std::function<void(const std::string&)>& on_note) const {
  LoaderOptions options;
  options.seed = config.seed;
  options.rank = strategy.rank();
  options.world_size = strategy.world_size();
  if (config.local_ranks > 1) options.cores = cores_of_rank(config);
  options.workers = config.workers;
  options.prefetch = config.prefetch;
  options.pin_memory = config.pin_memory;
  options.resize_on_device = config.resize_on != ImageWork::cpu;
  if (config.decode == ImageWork::gpu && data.stages()) options.jpeg = make_device_jpeg(config.device);
  options.device = config.device;
  options.data_on_device = config.data_on_device && data.resident();
  options.bad_samples = config.bad_samples;
  options.on_warning = on_note;
  return options;
}

std::int64_t DataPipeline::batches_per_epoch() const {
  const std::int64_t all = train_->batches_per_epoch() / config_.repeated_aug;
  return config_.overfit_batches > 0 ? std::min(config_.overfit_batches, all)
                                     : std::max<std::int64_t>(1, config_.limit_train_batches.of(all));
}

std::int64_t DataPipeline::samples_per_epoch() const {
  return std::min(train_->samples_per_epoch(), batches_per_epoch() * config_.batch_size);
}

std::int64_t DataPipeline::held_out_batches() const {
  const std::int64_t all = held_out_->batches_per_epoch();
  if (config_.fast_dev_run > 0) return std::min(config_.fast_dev_run, all);
  return config_.overfit_batches > 0 ? std::min(config_.overfit_batches, all)
                                     : config_.limit_val_batches.of(all);
}

std::int64_t DataPipeline::steps_per_epoch() const {
  return (batches_per_epoch() + config_.accumulate - 1) / config_.accumulate;
}

std::int64_t DataPipeline::samples_of_step(std::int64_t delivered) const {
  return std::min(samples_per_epoch() - delivered, config_.accumulate * config_.batch_size);
}

Batch DataPipeline::prepare(const Batch& batch, const BatchPosition& place) const {
  Batch ready = prepare(batch, place.epoch, true);
  mix(ready, config_.augment, mix_key(place.seed, place.step, place.pass));
  ObserveScope::for_each([](OpObserver& observer) { observer.pass_began(); });
  return ready;
}

BatchPosition DataPipeline::place(std::int64_t epoch, std::int64_t step, std::int64_t of_ranks, bool training,
                                  std::int64_t pass) const {
  const detail::BatchPlan plan{of_ranks, of_ranks, strategy_.rank(), strategy_.world_size()};
  const detail::BatchPlan::Rows rows = plan.rows_of(0);
  return {.training = training,
          .epoch = epoch,
          .step = step,
          .samples = rows.count,
          .first = rows.first,
          .of_ranks = of_ranks,
          .seed = config_.seed,
          .options = {compute_dtype(config_.precision), config_.device},
          .pass = pass};
}

void DataPipeline::start_epoch(std::int64_t epoch, std::int64_t delivered) {
  std::size_t stretch = 0;
  while (stretch + 1 < stretches_.size() && stretches_[stretch + 1].first <= epoch) ++stretch;
  if (std::exchange(stretch_, stretch) != stretch || !config_.persistent_workers) {
    train_.reset();
    train_ = make_train();
  }
  train_->start_epoch(epoch, delivered);
}

void DataPipeline::next(Batch& batch, PhaseTimes& times) const {
  const auto timed = times.scope(&Times::data);
  const LoaderWaits before = train_->waits();
  const bool more = train_->next(batch);
  ATH_CHECK(more, "data: an epoch must last for all of its steps, but has ended after {} samples",
            train_->samples_per_epoch());
  const LoaderWaits& after = train_->waits();
  times.move(after.copy_s - before.copy_s, &Times::data, &Times::copy);
  times.move(after.device_s - before.device_s, &Times::data, &Times::device);
}

std::string DataPipeline::describe() const {
  const LoaderStats now = train_->stats();
  if (train_->options().data_on_device) return "data on the device";
  if (now.threads > 0) {
    const bool fixed = train_->options().workers != LoaderOptions::kAuto;
    return fmt::format("data read by {} thread{}{}", now.workers, now.workers == 1 ? "" : "s",
                       fixed ? "" : fmt::format(" (auto: at most {})", now.threads));
  }
  return resident_ ? "data in memory" : "data read by the training thread";
}

EpochReport DataPipeline::begin_report(const Times& times, double seconds, std::int64_t steps) const {
  EpochReport report;
  // A resumed run may have nothing to do for an epoch but its validation and its report.
  if (steps > 0) report.times = times;
  report.times.validation = 0;
  report.other_s = std::max(seconds - report.times.step() - times.saving, 0.0);
  report.loader = train_->stats();
  const auto count = static_cast<double>(std::max<std::int64_t>(steps, 1));
  report.bottleneck = find_bottleneck(report.times, {.device = config_.device,
                                                     .resident = resident_,
                                                     .loader = report.loader,
                                                     .prefetch = config_.prefetch,
                                                     .threads = cpu_context().threads(),
                                                     .cores = usable_cpus(),
                                                     .per_step_s = (seconds - times.saving) / count});
  return report;
}

void DataPipeline::add_bad_samples(EpochReport& report, ParallelStrategy& strategy, bool validated) {
  const LoaderStats held_out = held_out_ && validated ? held_out_->stats() : LoaderStats{};
  const auto counted = [](std::int64_t count) { return static_cast<double>(count); };
  double of_all[] = {counted(report.loader.skipped), counted(held_out.skipped),
                     counted(report.loader.harmless + held_out.harmless)};
  strategy.add_up(of_all);
  report.loader.skipped = static_cast<std::int64_t>(of_all[0]);
  const auto shown = [](double count) { return with_commas(static_cast<std::int64_t>(count)); };
  const auto first = [](const std::string& name) { return name.empty() ? "on another rank" : name; };
  const auto note = [&](const LoaderStats& stats, double count, const char* of) {
    if (count == 0) return;
    report.notes.push_back(fmt::format("bad samples: {} of {} replaced, the first: {}", shown(count), of,
                                       first(stats.first_skipped)));
  };
  note(report.loader, of_all[0], "training");
  note(held_out, of_all[1], "validation");
  if (of_all[2] == 0 || std::exchange(told_of_harmless_, true)) return;
  const LoaderStats& with_first = report.loader.harmless > 0 ? report.loader : held_out;
  report.notes.push_back(
      harmless_note(static_cast<std::int64_t>(of_all[2]), first(with_first.first_harmless)));
}

void DataPipeline::add_repeated_reads(EpochReport& report, ParallelStrategy& strategy) const {
  const RepeatedReads here = take_repeated_reads();
  double of_all[] = {static_cast<double>(here.count)};
  strategy.add_up(of_all);
  const auto count = static_cast<std::int64_t>(of_all[0]);
  if (count == 0) return;
  report.notes.push_back(fmt::format("{} {} tried again after an error: {}", with_commas(count),
                                     count == 1 ? "read was" : "reads were",
                                     here.count > 0 ? std::strerror(here.error) : "on another rank"));
}

}  // namespace athanor
