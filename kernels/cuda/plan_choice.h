#pragma once

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "kernels/cuda/autotune.h"
#include "kernels/cuda/plan_folder.h"
#include "kernels/cuda/vendor.h"
#include "tensor/error.h"

// How a plan is chosen among the vendor's candidates and our own kernel, whatever a plan is.

namespace athanor::cuda {

/// What was decided about a signature.
template <class Plan> struct Choice {
  std::optional<Plan> plan;          ///< nothing where the vendor has none
  double vendor_ms = 0, own_ms = 0;  ///< 0 where not measured
  bool provisional = false;          ///< made while a stream was captured; looked at again after

  bool own_is_faster() const { return own_ms > 0 && vendor_ms > 0 && own_ms < vendor_ms; }
};

/// Whom a choice is made for, and where it is kept.
struct Planner {
  CudaContext& context;
  const VendorOptions& options;
  VendorStats& stats;
  const PlanFolder& folder;
};

// Both functions below take the steps of one kind of operation:
//   key()                      what the signature's plan is kept under between runs: it names the device and
//                              the library's version, too
//   find(most)                 the vendor's candidates, its best guess first
//   read(text), write(plan)    a plan as text, and back
//   accept(plan)               whether it does what it must, tried on the device; not asked in a capture
//   run(plan)                  queues the work, to be measured: it writes only what is written anyway
//   run_own()                  the same by our own kernel; may be missing

/// Decides about a signature that nothing is known of.
template <class Plan, class Steps>
Choice<Plan> decide(const Planner& planner, bool capturing, const Steps& steps) {
  const VendorOptions& options = planner.options;
  const bool measures = options.autotune && !planner.context.deterministic;
  std::vector<Plan> plans =
      steps.find(measures && !capturing ? static_cast<std::size_t>(options.candidates) : 1);
  Choice<Plan> choice;
  if (capturing) {
    choice.provisional = true;
    if (!plans.empty()) choice.plan = std::move(plans[0]);
    return choice;
  }
  std::erase_if(plans, [&](const Plan& plan) { return !steps.accept(plan); });
  if (plans.empty()) return choice;
  if (!measures) {
    choice.plan = std::move(plans[0]);
    return choice;
  }

  ++planner.stats.tuned;
  Stopwatch watch(planner.context);
  const auto measured = [&](double best, auto&& run) {
    try {
      return watch.median_ms(best, run);
    } catch (const BackendError&) {  // a plan was promised that does not run here
      return Stopwatch::kTooSlow;
    } catch (const OutOfMemoryError&) {
      return Stopwatch::kTooSlow;
    }
  };
  std::size_t best = 0;
  for (std::size_t i = 0; i < plans.size(); ++i) {
    const double ms = measured(choice.vendor_ms, [&] { steps.run(plans[i]); });
    if (i > 0 && ms >= choice.vendor_ms) continue;
    choice.vendor_ms = ms;
    best = i;
  }
  if (choice.vendor_ms < Stopwatch::kTooSlow) choice.plan = std::move(plans[best]);
  if constexpr (requires { steps.run_own(); })
    choice.own_ms = measured(choice.vendor_ms, [&] { steps.run_own(); });
  return choice;
}

/// What to do about a signature: as decided before, in this process or, by its files, in another; else
/// decided now.
template <class Plan, class Signature, class Steps>
const Choice<Plan>& choose(const Planner& planner, BoundedCache<Signature, Choice<Plan>>& cache,
                           const Signature& signature, const Steps& steps) {
  if (const Choice<Plan>* const known = cache.find(signature); known && !known->provisional) return *known;
  const bool capturing = is_capturing(planner.context);
  if (const Choice<Plan>* const known = cache.find(signature); known && capturing) return *known;

  const PlanFolder& folder = planner.folder;
  VendorStats& stats = planner.stats;
  const std::string key = steps.key();
  auto [lookup, stored] = folder.load(key);
  if (lookup == Lookup::found) {
    Choice<Plan> choice{std::nullopt, stored.vendor_ms, stored.own_ms, false};
    if (!stored.plan.empty()) choice.plan = steps.read(stored.plan);
    if (choice.plan.has_value() != stored.plan.empty()) {
      ++stats.plans_loaded;
      return cache.insert(signature, std::move(choice));
    }
    lookup = Lookup::rejected;
  }
  if (lookup == Lookup::rejected) ++stats.disk_rejected;
  if (lookup == Lookup::missing && folder.enabled()) ++stats.disk_misses;

  Choice<Plan> choice = decide<Plan>(planner, capturing, steps);
  ++stats.plans_made;
  // A guess is made again as quickly as it is read; a plan that did not run may run the next time.
  if (choice.plan ? choice.vendor_ms > 0 : choice.vendor_ms == 0 && !choice.provisional)
    folder.save(key,
                {choice.plan ? steps.write(*choice.plan) : std::string(), choice.vendor_ms, choice.own_ms});
  return cache.insert(signature, std::move(choice));
}

}  // namespace athanor::cuda
