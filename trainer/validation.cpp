#include "trainer/validation.h"

#include <vector>

#include "autograd/grad_mode.h"

namespace athanor {

std::optional<Metrics> Validation::run(Ema* average, PhaseTimes& times, std::int64_t most) {
  const auto timed = times.scope(&Times::validation);
  ValidatedModel model(average, strategy_);
  strategy_.broadcast_buffers();
  const InferenceMode inference;
  task_.network().eval();
  sums_.clear();
  held_out_.start_epoch(0);
  Pass pass{.metrics = sums_, .times = times};
  Batch batch;
  for (std::int64_t done = 0; done != most && held_out_.next(batch); ++done) {
    if (batch.size() > 0) task_.validation_step(batch, pass);
    limits_.agree();
    if (limits_.signal() != 0) break;
  }
  task_.network().train();
  model.end();
  if (limits_.signal() != 0) return std::nullopt;
  std::vector<double> sums = sums_.read();
  strategy_.add_up(sums);
  return MetricSums::mean(sums);
}

}  // namespace athanor
