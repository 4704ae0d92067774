// Gradients that overflow at the lowest loss scale: which parameter's, and in which op.

#include <algorithm>
#include <cmath>

#include "autograd/engine.h"
#include "tensor/error.h"
#include "trainer/trainer.h"

namespace athanor {
namespace {

constexpr char kNothingFound[] = "every op gave finite numbers this time";

/// The first parameter, in declared order, with a gradient that holds a NaN or an infinity. Waits.
std::string first_not_finite(const ParameterArena& arena) {
  for (int i = 0; i < arena.size(); ++i) {
    if (!arena.has_gradient(i)) continue;
    const std::vector<double> gradient = arena.gradient(i).to_vector();
    if (!std::all_of(gradient.begin(), gradient.end(), [](double g) { return std::isfinite(g); })) {
      return arena.parameters()[static_cast<std::size_t>(i)].name;
    }
  }
  return "none alone, but their norm";
}

}  // namespace

void Trainer::check_overflows(const StepState& known, std::int64_t patience) {
  if (known.stuck_steps < patience || patience == 0) return;
  const AllowSync allow;
  const StepState now = step_->read();
  if (now.stuck_steps < patience) return;  // it has come right since
  const std::string parameter = first_not_finite(*arena_);
  // Perhaps on one rank only: the first that has found something.
  std::string op = kNothingFound;
  for (const std::string& found : ranks_.gather(find_overflow())) {
    if (op == kNothingFound) op = found;
  }
  detail::fail<Error>(
      "trainer: gradients must be finite, but those of {} steps in a row were not, with a loss scale of {} "
      "that may go no lower; the first of them is that of {}; checked op by op: {}; lower --lr, set "
      "--clip-norm, or use --precision bf16 or f32",
      now.stuck_steps, now.loss_scale, parameter, op);
}

// Does the last step once more with every op checked. The batches are those of then: their order is a
// function of the seed and the epoch. Weights and statistics are, too, because the step was skipped.
std::string Trainer::find_overflow() {
  const std::int64_t most = config_.accumulate * train_->options().batch_size;
  const std::int64_t samples = (at_.epoch_samples - 1) % most + 1;
  train_->start_epoch(at_.epoch, at_.epoch_samples - samples);
  try {
    const AnomalyMode checks;
    accumulate_gradients(samples, false);
  } catch (const Error& error) {
    return error.what();
  }
  return kNothingFound;
}

}  // namespace athanor
