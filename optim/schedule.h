#pragma once

#include <cstdint>
#include <functional>
#include <vector>

// Learning-rate schedules: pure functions of the number of applied steps before the step to be taken, so the
// first step is step 0. They have no state, so resumed runs and skipped steps need no special case. Computed
// in f64. All throw ArgumentError on rates that are negative or not finite, lengths below 1, and milestones
// out of order.

namespace athanor {

/// The learning rate of a step, by the number of steps applied before it.
using Schedule = std::function<float(std::int64_t applied_step)>;

namespace schedules {

/// `rate` at every step.
Schedule constant(double rate);

/// rate * gamma^floor(step / every), as torch.optim.lr_scheduler.StepLR.
Schedule step_decay(double rate, std::int64_t every, double gamma = 0.1);

/// rate * gamma^(number of milestones <= step); milestones increase. As MultiStepLR.
Schedule multi_step(double rate, std::vector<std::int64_t> milestones, double gamma = 0.1);

/// Half a cosine from `rate` at step 0 to `minimum` at step `total`, then constant.
/// Source: Loshchilov and Hutter 2017, arXiv:1608.03983, equation 5 without restarts.
Schedule cosine(double rate, std::int64_t total, double minimum = 0);

/// (rate - end) (1 - step / total)^power + end up to `total`, then `end`. As PolynomialLR for end 0.
Schedule polynomial(double rate, std::int64_t total, double power, double end = 0);

/// Linear from `rate` at step 0 to `end` at step `total`, then constant.
Schedule linear(double rate, std::int64_t total, double end = 0);

/// Linear warm-up over the first `steps` steps: step s has (start + (1 - start) s / steps) * after(0).
/// `after` follows and counts its own steps from 0. `start` in [0, 1] is the fraction of the first step; 1 /
/// steps gives (s + 1) / steps nearly everywhere.
Schedule warm_up(std::int64_t steps, Schedule after, double start = 0);

/// How a rate falls: along half a cosine, or a line.
enum class Anneal : std::uint8_t { cosine, linear };

struct OneCycle {
  double max_rate = 0.1;
  std::int64_t total = 0;         ///< steps; the last one is total - 1
  double rise = 0.3;              ///< fraction of the steps with a rising rate
  double div_factor = 25;         ///< first rate = max_rate / div_factor
  double final_div_factor = 1e4;  ///< last rate = first rate / final_div_factor
  Anneal anneal = Anneal::cosine;
};

/// Rises to max_rate and falls again, the formula of torch.optim.lr_scheduler.OneCycleLR with two phases;
/// constant from step `total` on. Source: Smith and Topin 2018, arXiv:1708.07120.
Schedule one_cycle(const OneCycle& cycle);

}  // namespace schedules
}  // namespace athanor
