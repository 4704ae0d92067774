#pragma once

#include <algorithm>
#include <cstddef>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "kernels/cuda/autotune.h"
#include "kernels/cuda/found.h"
#include "kernels/cuda/plan_folder.h"
#include "kernels/cuda/vendor.h"
#include "tensor/cuda/allocator.h"
#include "tensor/error.h"

// How a plan is chosen among the vendor's candidates and our own kernel, whatever a plan is.

namespace athanor::cuda {

/// What was decided about a signature.
template <class Plan> struct Choice {
  std::optional<Plan> plan;          ///< nothing where the vendor has none
  double vendor_ms = 0, own_ms = 0;  ///< 0 where not measured
  bool provisional = false;          ///< made while a stream was captured; looked at again after
  bool certain = true;               ///< would be decided like this the next time, too
  bool untried = false;              ///< read from a file, and not run since

  bool own_is_faster() const { return own_ms > 0 && vendor_ms > 0 && own_ms < vendor_ms; }
};

/// Whom a choice is made for, and where it is kept.
struct Planner {
  CudaContext& context;
  const VendorOptions& options;
  VendorStats& stats;
  const PlanFolder& folder;
};

// The functions below take the steps of one kind of operation:
//   key()                      what the signature's plan is kept under between runs: it names all that a
//                              measurement depends on, too
//   find(most)                 what the vendor has, as Found
//   read(text), write(plan)    a plan as text, and back
//   accept(plan)               whether it does what it must, tried on the device; not asked in a capture
//   run(plan)                  queues all of the work, to be measured: it writes only what is written anyway
//   run_own()                  the same by our own kernel; may be missing

namespace detail {

enum class Went : unsigned char { well, badly, out_of_memory };

/// How f() went: badly where a library or the device refused.
template <class F> Went attempt(F&& f) {
  try {
    f();
    return Went::well;
  } catch (const BackendError&) {
    return Went::badly;
  } catch (const OutOfMemoryError&) {
    return Went::out_of_memory;
  }
}

/// While alive, memory comes from the pool for everybody: what is worked in here once would else stay with
/// the graph that this thread prepares (GraphMemory::Use).
class OutsideGraphPools {
 public:
  explicit OutsideGraphPools(Device device)
      : device_(device), saved_(exchange_active_pool(device, nullptr)) {}
  ~OutsideGraphPools() { exchange_active_pool(device_, saved_); }
  OutsideGraphPools(const OutsideGraphPools&) = delete;
  OutsideGraphPools& operator=(const OutsideGraphPools&) = delete;

 private:
  Device device_;
  Pool* saved_;
};

/// Times every plan, and our own kernels where there are some; the fastest plan becomes the choice.
template <class Plan, class Steps>
void choose_fastest(const VendorOptions& options, std::vector<Plan>& plans, Stopwatch& watch,
                    const Steps& steps, Choice<Plan>& choice) {
  const auto measured = [&](int candidate, auto&& run) {
    double ms = Stopwatch::kTooSlow;
    const Went went = attempt([&] { ms = watch.median_ms(choice.vendor_ms, run); });
    choice.certain = choice.certain && went != Went::out_of_memory;
    if (went != Went::well) ms = Stopwatch::kTooSlow;
    if (options.on_measured)
      options.on_measured(
          {steps.key(), candidate, ms < Stopwatch::kTooSlow ? ms : std::numeric_limits<double>::infinity()});
    return ms;
  };
  std::size_t best = 0;
  for (std::size_t i = 0; i < plans.size(); ++i) {
    const double ms = measured(static_cast<int>(i), [&] { steps.run(plans[i]); });
    if (i > 0 && ms >= choice.vendor_ms) continue;
    choice.vendor_ms = ms;
    best = i;
  }
  if (choice.vendor_ms < Stopwatch::kTooSlow) {
    choice.plan = std::move(plans[best]);
  } else {
    choice.certain = false;
  }
  if constexpr (requires { steps.run_own(); }) choice.own_ms = measured(-1, [&] { steps.run_own(); });
}

}  // namespace detail

/// Decides about a signature that nothing is known of. Throws nothing that a library or the device says.
template <class Plan, class Steps>
Choice<Plan> decide(const Planner& planner, bool capturing, const Steps& steps) {
  using detail::Went;
  const VendorOptions& options = planner.options;
  const bool measures = options.autotune && !planner.context.deterministic;
  Choice<Plan> choice;
  Found<Plan> found;
  const auto ask = [&] {
    found = steps.find(measures && !capturing ? static_cast<std::size_t>(options.candidates) : 1);
  };
  choice.certain = detail::attempt(ask) == Went::well && found.certain;
  std::vector<Plan>& plans = found.plans;
  if (capturing) {
    choice.provisional = true;
    if (!plans.empty()) choice.plan = std::move(plans[0]);
    return choice;
  }

  const detail::OutsideGraphPools ordinary(planner.context.device());
  bool failed = false;  // a plan that was promised: it may run the next time
  std::erase_if(plans, [&](const Plan& plan) {
    bool accepted = false;
    const Went went = detail::attempt([&] { accepted = steps.accept(plan); });
    failed = failed || went != Went::well;
    choice.certain = choice.certain && went != Went::out_of_memory;
    return !accepted;
  });
  if (plans.empty()) {
    choice.certain = choice.certain && !failed;
    return choice;
  }
  std::optional<Stopwatch> watch;
  if (!measures || detail::attempt([&] { watch.emplace(planner.context); }) != Went::well) {
    choice.certain = choice.certain && !measures;
    choice.plan = std::move(plans[0]);
    return choice;
  }

  ++planner.stats.tuned;
  detail::choose_fastest(options, plans, *watch, steps, choice);
  return choice;
}

/// The same, and keeps it in the cache, and in the folder where that saves the next run something: a guess is
/// made again as quickly as it is read.
template <class Plan, class Signature, class Steps>
Choice<Plan>& decide_and_keep(const Planner& planner, BoundedCache<Signature, Choice<Plan>>& cache,
                              const Signature& signature, bool capturing, const Steps& steps) {
  Choice<Plan> choice = decide<Plan>(planner, capturing, steps);
  ++planner.stats.plans_made;
  const bool worth = choice.certain && !choice.provisional && (!choice.plan || choice.vendor_ms > 0);
  const auto save = [&] {
    planner.folder.save(steps.key(), {choice.plan ? steps.write(*choice.plan) : std::string(),
                                      choice.vendor_ms, choice.own_ms});
  };
  if (worth) detail::attempt(save);
  return cache.insert(signature, std::move(choice));
}

/// What to do about a signature: as decided before, in this process or, by its files, in another; else
/// decided now.
template <class Plan, class Signature, class Steps>
Choice<Plan>& choose(const Planner& planner, BoundedCache<Signature, Choice<Plan>>& cache,
                     const Signature& signature, const Steps& steps) {
  Choice<Plan>* const known = cache.find(signature);
  if (known && !known->provisional) return *known;
  const bool capturing = is_capturing(planner.context);
  if (known && capturing) return *known;

  const PlanFolder& folder = planner.folder;
  VendorStats& stats = planner.stats;
  auto loaded = folder.load(steps.key());
  Lookup& lookup = loaded.first;
  const StoredPlan& stored = loaded.second;
  if (lookup == Lookup::found) {
    Choice<Plan> choice;
    choice.vendor_ms = stored.vendor_ms, choice.own_ms = stored.own_ms;
    detail::attempt([&] {
      if (!stored.plan.empty()) choice.plan = steps.read(stored.plan);
    });
    choice.untried = choice.plan.has_value();
    if (choice.plan.has_value() != stored.plan.empty()) {
      ++stats.plans_loaded;
      return cache.insert(signature, std::move(choice));
    }
    lookup = Lookup::rejected;
  }
  if (lookup == Lookup::rejected) ++stats.disk_rejected;
  if (lookup == Lookup::missing && folder.enabled()) ++stats.disk_misses;
  return decide_and_keep(planner, cache, signature, capturing, steps);
}

enum class Answer : unsigned char { done, no_plan, own_is_faster };

/// Runs a signature by the plan chosen for it: execute(plan) does the work. Where ours may be preferred and
/// was measured to be faster, nothing is done. A plan from a file that does not run here is forgotten, and
/// chosen again, once.
template <class Plan, class Signature, class Steps, class Execute>
Answer serve(const Planner& planner, BoundedCache<Signature, Choice<Plan>>& cache, const Signature& signature,
             bool may_prefer_own, const Steps& steps, const Execute& execute) {
  Choice<Plan>* choice = &choose(planner, cache, signature, steps);
  const auto own = [&] { return may_prefer_own && choice->own_is_faster(); };
  if (choice->plan && choice->untried && !own()) {
    choice->untried = false;
    try {
      execute(*choice->plan);
      ++planner.stats.calls;
      return Answer::done;
    } catch (const BackendError&) {
      ++planner.stats.disk_rejected;
      choice = &decide_and_keep(planner, cache, signature, is_capturing(planner.context), steps);
    }
  }
  if (!choice->plan) return Answer::no_plan;
  if (own()) return Answer::own_is_faster;
  execute(*choice->plan);
  ++planner.stats.calls;
  return Answer::done;
}

}  // namespace athanor::cuda
