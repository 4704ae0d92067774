// Gradients that overflow at the lowest loss scale: which parameter's, and in which op.

#include <algorithm>
#include <cmath>
#include <span>

#include "autograd/engine.h"
#include "tensor/error.h"
#include "trainer/trainer.h"

namespace athanor {
namespace {

constexpr char kNothingFound[] = "every op gave finite numbers this time";

/// The first parameter, in declared order, with a gradient that holds a NaN or an infinity; arena.size()
/// where none does. Looks at what this rank keeps: of the rest of a shard, gradients are no sums. Waits.
int first_not_finite(const ParameterArena& arena) {
  for (int i = 0; i < arena.size(); ++i) {
    if (!arena.has_gradient(i)) continue;
    bool finite = true;
    const std::vector<double> gradient = arena.gradient(i).to_vector();
    arena.for_each_owned(i, [&](const ParameterArena::Run& run) {
      const auto begin = gradient.begin() + run.begin;
      finite &= std::all_of(begin, begin + run.count, [](double g) { return std::isfinite(g); });
    });
    if (!finite) return i;
  }
  return arena.size();
}

}  // namespace

std::string_view advice_on_divergence(Precision precision) {
  return precision == Precision::f16 ? "lower --lr, set --clip-norm, or use --precision bf16 or f32"
                                     : "lower --lr, or set --clip-norm";
}

void Trainer::check_overflows(const StepState& known, std::int64_t patience) {
  if (known.stuck_steps < patience || patience == 0) return;
  const AllowSync allow;
  const StepState now = step_->read();
  if (now.stuck_steps < patience) return;  // it has come right since
  ranks_.complete_weights();
  const double mine = first_not_finite(*arena_);
  const std::vector<double> firsts = ranks_.gather(std::span(&mine, 1));
  const auto first = static_cast<std::size_t>(*std::min_element(firsts.begin(), firsts.end()));
  const auto parameters = arena_->parameters();
  const std::string parameter =
      first < parameters.size() ? parameters[first].name : "none alone, but their norm";
  // Perhaps on one rank only: the first that has found something.
  std::string op = kNothingFound;
  for (const std::string& found : ranks_.gather(find_overflow())) {
    if (op == kNothingFound) op = found;
  }
  detail::fail<DivergedError>(
      "trainer: gradients must be finite, but those of {} steps in a row were not, with a loss scale of {} "
      "that may go no lower; the first of them is that of {}; checked op by op: {}; {}",
      now.stuck_steps, now.loss_scale, parameter, op, advice_on_divergence(config_.precision));
}

// Does the last step once more with every op checked. The batches are those of then: their order is a
// function of the seed and the epoch. Weights and statistics are, too, because the step was skipped. Each
// rank by itself: one that finds something is not there for the others, and an infinity remains one in a
// batch norm of its own samples.
std::string Trainer::find_overflow() {
  const std::int64_t most = config_.accumulate * train_->options().batch_size;
  const std::int64_t samples = (at_.epoch_samples - 1) % most + 1;
  train_->start_epoch(at_.epoch, at_.epoch_samples - samples);
  if (norms_) norms_->leave();
  try {
    const AnomalyMode checks;
    accumulate_gradients(samples, false);
  } catch (const PeerLostError&) {
    throw;
  } catch (const ArgumentError&) {
    return kNothingFound;  // of a batch norm with a single value, now that it is alone
  } catch (const Error& error) {
    return error.what();
  }
  return kNothingFound;
}

}  // namespace athanor
