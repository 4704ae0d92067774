#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/dataset.h"
#include "data/loader.h"
#include "data/preprocess.h"
#include "trainer/callback.h"
#include "trainer/config.h"
#include "trainer/parallel_strategy.h"
#include "trainer/phase_times.h"
#include "trainer/task.h"

namespace athanor {

/// The source of samples: the loaders of the training set and, if any, of the validation set, with facts
/// about them. Loader threads read the data sets until destruction.
class DataPipeline {
 public:
  /// `on_note` receives urgent notes for the user, on this thread inside next(). Throws ArgumentError if the
  /// data sets do not match each other, or the number of ranks; with --bad-samples list, a call of all ranks,
  /// UnreadableSamplesError.
  DataPipeline(const TrainerConfig& config, ParallelStrategy& strategy, const Dataset& train,
               const Dataset* held_out, const std::function<void(const std::string&)>& on_note);

  Loader& train() const { return *train_; }
  /// Null without validation data.
  Loader* held_out() const { return held_out_.get(); }
  /// data_id() of the training set, and of the validation set or, without one, 0.
  std::uint64_t train_id() const { return train_id_; }
  std::uint64_t held_out_id() const { return held_out_id_; }
  /// What the sources of both sets hold besides samples.
  const std::vector<Unused>& unused() const { return unused_; }
  /// The normalisation of pixels: as configured, or measured on the training set.
  const Normalization& pixels() const { return pixels_; }

  /// Training samples of an epoch, over all ranks, after --limit-train-batches.
  std::int64_t samples_per_epoch() const;
  /// Maximum number of batches of a validation.
  std::int64_t held_out_batches() const;
  std::int64_t steps_per_epoch() const;
  /// Samples of the next step, over all ranks, after `delivered` samples of the epoch; 0: the epoch is over.
  std::int64_t samples_of_step(std::int64_t delivered) const;
  /// Loader::start_epoch() of the training set; creates new threads where images change their size, and
  /// without --persistent-workers.
  void start_epoch(std::int64_t epoch, std::int64_t delivered);
  /// This rank's part of the next training batch.
  void next(Batch& batch, PhaseTimes& times) const;
  /// The position of a batch of `of_ranks` samples, of which this rank has a part.
  BatchPosition place(std::int64_t epoch, std::int64_t step, std::int64_t of_ranks, bool training,
                      std::int64_t pass = 0) const;
  /// A batch as network input, on the device; augmented for training, unchanged for validation.
  Batch prepare(const Batch& batch, std::int64_t epoch, bool training) const {
    return preprocess_of(batch).prepare(batch, epoch, training);
  }
  /// The same for a training batch, mixed (data/mix.h) if configured.
  Batch prepare(const Batch& batch, const BatchPosition& place) const;

  /// "data in memory".
  std::string describe() const;
  /// Begins the report between the training of an epoch and its validation: times, bottleneck and loader
  /// statistics. Training took `seconds` for `steps` steps.
  EpochReport begin_report(const Times& times, double seconds, std::int64_t steps) const;
  /// Adds the samples that could not be read and, once, those with harmless defects: a call of all ranks.
  void add_bad_samples(EpochReport& report, ParallelStrategy& strategy, bool validated);
  /// Adds a note on reads that failed for a moment since the last call.
  void add_repeated_reads(EpochReport& report, ParallelStrategy& strategy) const;

 private:
  LoaderOptions options(const TrainerConfig& config, const ParallelStrategy& strategy, const Dataset& data,
                        const std::function<void(const std::string&)>& on_note) const;

  std::int64_t batches_per_epoch() const;
  std::unique_ptr<Loader> make_train() const;
  const Preprocess& preprocess_of(const Batch& batch) const;

  /// Epochs whose training images have one size.
  struct Stretch {
    std::int64_t first = 0;  ///< epoch
    std::shared_ptr<const Dataset> images;
  };

  const TrainerConfig& config_;
  LoaderOptions of_train_;
  std::vector<Stretch> stretches_;
  std::size_t stretch_ = 0;  // of the loader
  const ParallelStrategy& strategy_;
  bool resident_;  // the training set is in memory
  std::uint64_t train_id_, held_out_id_ = 0;
  std::vector<Unused> unused_;
  bool told_of_harmless_ = false;
  std::unique_ptr<Loader> train_, held_out_;
  Normalization pixels_;
  std::vector<Preprocess> preprocess_;  // one for each size of images
};

}  // namespace athanor
