#include "trainer/overflow.h"

#include <algorithm>
#include <cmath>
#include <span>

#include "autograd/engine.h"
#include "tensor/error.h"
#include "trainer/callback.h"

namespace athanor {
namespace {

constexpr char kNothingFound[] = "every op returned finite numbers this time";

/// Index of the first parameter, in declared order, with a NaN or infinite gradient; arena.size() if none.
/// Checks only this rank's part: outside its shard, gradients are not sums. Waits.
std::size_t first_not_finite(const ParameterArena& arena) {
  for (int i = 0; i < arena.size(); ++i) {
    if (!arena.has_gradient(i)) continue;
    bool finite = true;
    const std::vector<double> gradient = arena.gradient(i).to_vector();
    arena.for_each_owned(i, [&](const ParameterArena::Run& run) {
      const auto begin = gradient.begin() + run.begin;
      finite &= std::all_of(begin, begin + run.count, [](double g) { return std::isfinite(g); });
    });
    if (!finite) return static_cast<std::size_t>(i);
  }
  return static_cast<std::size_t>(arena.size());
}

// Checks every op, on each rank alone: a rank that finds an error cannot take part in collectives.
std::string find_op(const std::function<void()>& repeat) {
  try {
    const AnomalyMode checks;
    repeat();
  } catch (const PeerLostError&) {
    throw;
  } catch (const ArgumentError&) {
    return kNothingFound;  // a batch norm with a single value, now that it is alone
  } catch (const Error& error) {
    return error.what();
  }
  return kNothingFound;
}

}  // namespace

std::string_view advice_on_divergence(Precision precision) {
  return precision == Precision::f16 ? "lower --lr, set --clip-norm, or use --precision bf16 or f32"
                                     : "lower --lr, or set --clip-norm";
}

void check_overflows(const StepState& known, std::int64_t patience, const StepBuffer& step,
                     const std::vector<const ParameterArena*>& arenas, ParallelStrategy& strategy,
                     const std::function<void()>& repeat) {
  if (known.overflows_at_floor < patience || patience == 0) return;
  const AllowSync allow;
  const StepState now = step.read();
  if (now.overflows_at_floor < patience) return;  // it has recovered since
  strategy.complete_weights();
  std::string parameter = "none alone, only their norm";
  for (const ParameterArena* const arena : arenas) {
    const std::size_t mine = first_not_finite(*arena);
    const std::vector<std::size_t> firsts = strategy.gather(std::span(&mine, 1));
    const std::size_t first = *std::min_element(firsts.begin(), firsts.end());
    if (first == arena->parameters().size()) continue;
    parameter = arena->parameters()[first].name;
    break;
  }
  // Possibly on one rank only: takes the first rank with a finding.
  std::string op = kNothingFound;
  for (const std::string& found : strategy.gather(find_op(repeat))) {
    if (op == kNothingFound) op = found;
  }
  detail::fail<DivergedError>(
      "trainer: gradients must be finite, but were not for {} consecutive steps{}; first bad parameter: {}; "
      "checked op by op: {}; {}",
      now.overflows_at_floor,
      now.loss_scale == 1 ? "" : fmt::format(" at loss scale {}, the lowest", now.loss_scale), parameter, op,
      advice_on_divergence(arenas.at(0)->options().precision));
}

}  // namespace athanor
