#include "trainer/validation.h"

#include <algorithm>
#include <vector>

#include "autograd/grad_mode.h"
#include "kernels/random_op.h"
#include "tensor/base/error.h"
#include "trainer/gather_metrics.h"

namespace athanor {

// A batch of validation may be larger than those of training.
void Validation::measure(const Batch& batch, Step& step, const BatchPosition& place) {
  const auto work = [&](const Batch& read) {
    task_.validation_step(pipeline_.prepare(read, 0, false), step);
  };
  try {
    if (graphs_) {
      graphs_->pass(batch, place.epoch, work);
      graphs_->end();
    } else {
      work(batch);
    }
    task_.validated(batch);
  } catch (const OutOfMemoryError& error) {
    if (place.of_ranks < 2) throw;
    detail::fail<OutOfMemoryError>(
        "{}. Validation does not fit in memory; try a smaller --val-batch-size, such as {}", error.what(),
        place.of_ranks / 2);
  }
}

std::optional<Metrics> Validation::run(std::int64_t epoch, const std::vector<Ema*>& averages,
                                       PhaseTimes& times, const dist::PassNetwork* ranks, std::int64_t most) {
  const auto timed = times.scope(&Times::validation);
  Loader* const held_out = pipeline_.held_out();
  if (!held_out) {
    strategy_.broadcast_buffers();  // for users of the model after training
    return Metrics::not_measured();
  }
  ValidatedModel model(averages, strategy_);
  strategy_.broadcast_buffers();
  const auto inference = inference_mode_ ? std::make_unique<InferenceMode>() : nullptr;
  task_.networks().eval();
  sums_.clear();
  held_out->start_epoch(0);
  Batch batch;
  std::int64_t draws = 0, left = held_out->samples_per_epoch();
  const std::int64_t all = pipeline_.held_out_batches(), count = most < 0 ? all : std::min(most, all);
  for (std::int64_t done = 0; done < count && held_out->next(batch); ++done) {
    const std::int64_t of_ranks = std::min(left, held_out->options().batch_size);
    left -= of_ranks;
    BatchPosition place = pipeline_.place(epoch, 0, of_ranks, false);
    if (graphs_) {
      graphs_->begin({task_.captured_as(place), false, batch.size(), held_out->spec()},
                     sums_.totals().raw_data());
      place.may_be_captured = graphs_->may_capture();
    }
    const SampleScope samples({place.first, place.samples});
    Step step(place, draws, {.metrics = sums_, .times = times, .ranks = ranks, .samples = samples_});
    if (batch.size() > 0 || ranks) measure(batch, step, place);
    limits_.agree();
    if (limits_.signal() != 0) break;
  }
  task_.networks().train();
  model.end();
  if (limits_.signal() != 0) return std::nullopt;
  return sums_.mean(sums_.joined(gather(sums_, strategy_)));
}

}  // namespace athanor
