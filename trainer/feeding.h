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

/// Where samples come from: the loaders of the training set and of what is held out, if anything is, and what
/// there is to say about them. Their threads read the data sets until it goes.
class Feeding {
 public:
  /// `on_note` is told, on this thread and inside next(), what a person should know at once. Throws
  /// ArgumentError where the data sets do not fit each other, or the number of ranks.
  Feeding(const TrainerConfig& config, const ParallelStrategy& strategy, const Dataset& train,
          const Dataset* held_out, const std::function<void(const std::string&)>& on_note);

  Loader& train() const { return *train_; }
  /// Null where nothing is.
  Loader* held_out() const { return held_out_.get(); }
  /// What pixels are normalised by: as configured, or measured on the training set.
  const Normalization& pixels() const { return pixels_; }

  /// What of the training set an epoch has, of all ranks: --limit-train-batches may leave a part out.
  std::int64_t samples_per_epoch() const;
  /// Batches of a validation, at most.
  std::int64_t held_out_batches() const;
  std::int64_t steps_per_epoch() const;
  /// Samples of all ranks that the next step has, after so many of the epoch; 0: it is over.
  std::int64_t samples_of_step(std::int64_t delivered) const;
  /// Loader::start_epoch() of the training set; without --persistent-workers, by threads of its own.
  void start_epoch(std::int64_t epoch, std::int64_t delivered);
  /// This rank's part of the next batch to train on.
  void next(Batch& batch, PhaseTimes& times) const;
  /// Where a batch of `of_ranks` samples stands, of which this rank has a part.
  BatchPlace place(std::int64_t epoch, std::int64_t step, std::int64_t of_ranks, bool training,
                   std::int64_t pass = 0) const;
  /// A batch as a network takes it, on the device, changed at random for training; of validation, as it is.
  Batch prepare(const Batch& batch, std::int64_t epoch, bool training) const {
    return preprocess_->prepare(batch, epoch, training);
  }
  /// The same of a batch to train on, and mixed (data/mix.h) where the run mixes.
  Batch prepare(const Batch& batch, const BatchPlace& place) const;

  /// "data in memory".
  std::string describe() const;
  /// After the training of an epoch, before its validation: its times and bottleneck, and what the loader did
  /// in it. It took `seconds`, for `steps`.
  EpochReport begin_report(const Times& times, double seconds, std::int64_t steps) const;
  /// Adds samples that could not be read: a call of all ranks.
  void add_bad_samples(EpochReport& report, ParallelStrategy& strategy, bool validated) const;

 private:
  LoaderOptions options(const TrainerConfig& config, const ParallelStrategy& strategy, const Dataset& data,
                        const std::function<void(const std::string&)>& on_note) const;

  std::int64_t batches_per_epoch() const;

  const TrainerConfig& config_;
  std::function<std::unique_ptr<Loader>()> make_train_;
  const ParallelStrategy& strategy_;
  bool resident_;  // the training set is in memory
  std::unique_ptr<Loader> train_, held_out_;
  Normalization pixels_;
  std::optional<Preprocess> preprocess_;
};

}  // namespace athanor
