#include "optim/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>

#include "tensor/base/error.h"

namespace athanor::schedules {
namespace {

void check_rate(const char* schedule, const char* what, double rate) {
  ATH_CHECK(std::isfinite(rate) && rate >= 0, "{}: {} must be finite and >= 0, but got {}", schedule, what,
            rate);
}

void check_steps(const char* schedule, const char* what, std::int64_t steps) {
  ATH_CHECK(steps >= 1, "{}: {} must be at least 1, but got {}", schedule, what, steps);
}

// The step as a fraction of the total, clamped to [0, 1].
double progress(std::int64_t step, std::int64_t total) {
  return std::clamp(static_cast<double>(step) / static_cast<double>(total), 0.0, 1.0);
}

double anneal(Anneal form, double from, double to, double part) {
  if (form == Anneal::linear) return from + (to - from) * part;
  return to + (from - to) / 2 * (1 + std::cos(std::numbers::pi * part));
}

}  // namespace

Schedule constant(double rate) {
  check_rate("constant", "rate", rate);
  return [rate](std::int64_t) { return static_cast<float>(rate); };
}

Schedule step_decay(double rate, std::int64_t every, double gamma) {
  check_rate("step_decay", "rate", rate);
  check_rate("step_decay", "gamma", gamma);
  check_steps("step_decay", "every", every);
  return [=](std::int64_t step) {
    return static_cast<float>(rate * std::pow(gamma, static_cast<double>(step / every)));
  };
}

Schedule multi_step(double rate, std::vector<std::int64_t> milestones, double gamma) {
  check_rate("multi_step", "rate", rate);
  check_rate("multi_step", "gamma", gamma);
  for (std::size_t i = 0; i < milestones.size(); ++i) {
    ATH_CHECK(milestones[i] > (i == 0 ? -1 : milestones[i - 1]),
              "multi_step: milestones must increase from 0 on, but got {} at index {}", milestones[i], i);
  }
  return [rate, gamma, milestones = std::move(milestones)](std::int64_t step) {
    const auto passed = std::upper_bound(milestones.begin(), milestones.end(), step) - milestones.begin();
    return static_cast<float>(rate * std::pow(gamma, static_cast<double>(passed)));
  };
}

Schedule cosine(double rate, std::int64_t total, double minimum) {
  check_rate("cosine", "rate", rate);
  check_rate("cosine", "minimum", minimum);
  check_steps("cosine", "total", total);
  return [=](std::int64_t step) {
    return static_cast<float>(anneal(Anneal::cosine, rate, minimum, progress(step, total)));
  };
}

Schedule polynomial(double rate, std::int64_t total, double power, double end) {
  check_rate("polynomial", "rate", rate);
  check_rate("polynomial", "end", end);
  check_steps("polynomial", "total", total);
  ATH_CHECK(std::isfinite(power) && power > 0, "polynomial: power must be finite and > 0, but got {}", power);
  return [=](std::int64_t step) {
    return static_cast<float>((rate - end) * std::pow(1 - progress(step, total), power) + end);
  };
}

Schedule linear(double rate, std::int64_t total, double end) {
  return polynomial(rate, total, 1, end);
}

Schedule warm_up(std::int64_t steps, Schedule after, double start) {
  ATH_CHECK(steps >= 0, "warm_up: steps must be >= 0, but got {}", steps);
  ATH_CHECK(start >= 0 && start <= 1, "warm_up: start must be in [0, 1], but got {}", start);
  ATH_CHECK(after, "warm_up: a schedule must follow the warm-up");
  return [steps, start, after = std::move(after)](std::int64_t step) {
    if (step >= steps) return after(step - steps);
    return static_cast<float>((start + (1 - start) * progress(step, steps)) * after(0));
  };
}

Schedule one_cycle(const OneCycle& cycle) {
  check_rate("one_cycle", "max_rate", cycle.max_rate);
  check_steps("one_cycle", "total", cycle.total);
  ATH_CHECK(cycle.rise >= 0 && cycle.rise <= 1, "one_cycle: rise must be in [0, 1], but got {}", cycle.rise);
  ATH_CHECK(cycle.div_factor > 0 && cycle.final_div_factor > 0,
            "one_cycle: both division factors must be > 0, but got {} and {}", cycle.div_factor,
            cycle.final_div_factor);
  return [cycle](std::int64_t step) {
    const double first = cycle.max_rate / cycle.div_factor, last = first / cycle.final_div_factor;
    const double peak = cycle.rise * static_cast<double>(cycle.total) - 1;
    const double end = static_cast<double>(cycle.total) - 1;
    const double at = std::min(static_cast<double>(step), end);
    if (at <= peak) {  // with a peak at step 0 there is no rise
      return static_cast<float>(anneal(cycle.anneal, first, cycle.max_rate, peak > 0 ? at / peak : 1.0));
    }
    const double part = end > peak ? (at - peak) / (end - peak) : 1.0;
    return static_cast<float>(anneal(cycle.anneal, cycle.max_rate, last, part));
  };
}

}  // namespace athanor::schedules
