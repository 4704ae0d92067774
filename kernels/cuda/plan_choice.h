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

/// Whom a choice is made for, where it is kept, and who hears of what goes wrong.
struct Planner {
  CudaContext& context;
  const VendorOptions& options;
  VendorLog& log;
  const PlanFolder& folder;
};

// The functions below take the steps of one kind of operation:
//   key()                      what the signature's plan is kept under between runs: it names all that a
//                              measurement depends on, too, but for the device and what the plan is made by
//   find(most)                 what the vendor has, as Found
//   read(text), write(plan)    a plan as text, and back
//   accept(plan)               whether it does what it must, tried on the device; not asked in a capture
//   run(plan)                  queues all of the work, to be measured: it writes only what is written anyway
//   run_own()                  the same by our own kernel; may be missing
//   ours_is_next()             whether our own kernel runs where there is no plan; false: another signature
//                              of the vendor's does; missing: yes

namespace detail {

enum class Went : unsigned char { well, badly, out_of_memory };

struct Outcome {
  Went went = Went::well;
  std::string why = {};
};

/// How f() went: badly where a library or the device refused.
template <class F> Outcome attempt(F&& f) {
  try {
    f();
    return {};
  } catch (const BackendError& error) {
    return {Went::badly, error.what()};
  } catch (const OutOfMemoryError& error) {
    return {Went::out_of_memory, error.what()};
  }
}

/// Plans of a signature that could not be run, or not be made.
struct Trouble {
  int refused = 0, without_memory = 0;
  std::string first = {};

  void add(const Outcome& outcome) {
    if (outcome.went == Went::well) return;
    ++(outcome.went == Went::badly ? refused : without_memory);
    if (first.empty()) first = outcome.why;
  }
};

/// What runs in the end.
enum class Runs : unsigned char { plan, another_signature, own };

/// Says what became of a signature some of whose `tried` plans gave trouble.
void report(const Planner& planner, const std::string& signature, const Trouble& trouble, std::size_t tried,
            Runs runs);

template <class Steps> Runs runs_without_plan(const Steps& steps) {
  if constexpr (requires { steps.ours_is_next(); }) {
    if (!steps.ours_is_next()) return Runs::another_signature;
  }
  return Runs::own;
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
                    const TuningTime& timed, const Steps& steps, Choice<Plan>& choice, Trouble& trouble) {
  const auto measured = [&](int candidate, auto&& run, Trouble& heard) {
    timed.tick();
    double ms = Stopwatch::kTooSlow;
    const Outcome outcome = attempt([&] { ms = watch.median_ms(choice.vendor_ms, run); });
    heard.add(outcome);
    choice.certain = choice.certain && outcome.went != Went::out_of_memory;
    if (outcome.went != Went::well) ms = Stopwatch::kTooSlow;
    if (options.on_measured)
      options.on_measured(
          {steps.key(), candidate, ms < Stopwatch::kTooSlow ? ms : std::numeric_limits<double>::infinity()});
    return ms;
  };
  std::size_t best = 0;
  for (std::size_t i = 0; i < plans.size(); ++i) {
    const double ms = measured(
        static_cast<int>(i), [&] { steps.run(plans[i]); }, trouble);
    if (i > 0 && ms >= choice.vendor_ms) continue;
    choice.vendor_ms = ms;
    best = i;
  }
  if (choice.vendor_ms < Stopwatch::kTooSlow) {
    choice.plan = std::move(plans[best]);
  } else {
    choice.certain = false;
  }
  Trouble ours;  // its own caller hears of it
  if constexpr (requires { steps.run_own(); })
    choice.own_ms = measured(
        -1, [&] { steps.run_own(); }, ours);
}

}  // namespace detail

/// Decides about a signature that nothing is known of. Throws nothing that a library or the device says, but
/// reports it.
template <class Plan, class Steps>
Choice<Plan> decide(const Planner& planner, bool capturing, const Steps& steps) {
  using detail::Outcome;
  using detail::Went;
  const VendorOptions& options = planner.options;
  const bool measures = options.autotune && !planner.context.deterministic;
  const TuningTime timed(planner.context, planner.log, planner.folder.path(), measures && !capturing);
  Choice<Plan> choice;
  detail::Trouble trouble;
  Found<Plan> found;
  const Outcome asked = detail::attempt(
      [&] { found = steps.find(measures && !capturing ? static_cast<std::size_t>(options.candidates) : 1); });
  trouble.add(asked);
  choice.certain = asked.went == Went::well && found.certain;
  std::vector<Plan>& plans = found.plans;
  if (plans.empty() && !found.certain) trouble.add({Went::badly, found.why});
  const std::size_t tried = plans.size();
  const auto report = [&] {
    const detail::Runs runs = choice.plan ? detail::Runs::plan : detail::runs_without_plan(steps);
    detail::report(planner, steps.key(), trouble, tried, runs);
  };
  if (capturing) {
    choice.provisional = true;
    if (!plans.empty()) choice.plan = std::move(plans[0]);
    report();
    return choice;
  }

  const detail::OutsideGraphPools ordinary(planner.context.device());
  bool failed = false;  // a plan that was promised: it may run the next time
  std::erase_if(plans, [&](const Plan& plan) {
    bool accepted = false;
    const Outcome outcome = detail::attempt([&] { accepted = steps.accept(plan); });
    trouble.add(outcome);
    failed = failed || outcome.went != Went::well;
    choice.certain = choice.certain && outcome.went != Went::out_of_memory;
    return !accepted;
  });
  std::optional<Stopwatch> watch;
  if (plans.empty()) {
    choice.certain = choice.certain && !failed;
  } else if (!measures || detail::attempt([&] { watch.emplace(planner.context); }).went != Went::well) {
    choice.certain = choice.certain && !measures;
    choice.plan = std::move(plans[0]);
  } else {
    ++planner.log.stats.tuned;
    detail::choose_fastest(options, plans, *watch, timed, steps, choice, trouble);
  }
  report();
  return choice;
}

/// The same, and keeps it in the cache, and in the folder where that saves the next run something: a guess is
/// made again as quickly as it is read.
template <class Plan, class Signature, class Steps>
Choice<Plan>& decide_and_keep(const Planner& planner, BoundedCache<Signature, Choice<Plan>>& cache,
                              const Signature& signature, bool capturing, const Steps& steps) {
  Choice<Plan> choice = decide<Plan>(planner, capturing, steps);
  ++planner.log.stats.plans_made;
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
  VendorStats& stats = planner.log.stats;
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
  if (lookup == Lookup::outdated) ++stats.disk_outdated;
  if (lookup == Lookup::missing && folder.enabled()) ++stats.disk_misses;
  return decide_and_keep(planner, cache, signature, capturing, steps);
}

enum class Answer : unsigned char { done, no_plan, own_is_faster };

/// Runs a signature by the plan chosen for it: execute(plan) does the work. Where ours may be preferred and
/// was measured to be faster, nothing is done. A plan from a file that does not run here is reported and
/// chosen again, once. One that was chosen here and is refused later is an error that names the signature.
template <class Plan, class Signature, class Steps, class Execute>
Answer serve(const Planner& planner, BoundedCache<Signature, Choice<Plan>>& cache, const Signature& signature,
             bool may_prefer_own, const Steps& steps, const Execute& execute) {
  Choice<Plan>* choice = &choose(planner, cache, signature, steps);
  VendorLog& log = planner.log;
  const auto own = [&] { return may_prefer_own && choice->own_is_faster(); };
  if (choice->plan && choice->untried && !own()) {
    choice->untried = false;
    try {
      execute(*choice->plan);
      ++log.stats.calls;
      return Answer::done;
    } catch (const BackendError& error) {
      ++log.stats.disk_rejected;
      log.add(steps.key(), {.refused = true},
              fmt::format("the plan of {} was refused when it ran, and another is chosen: {}",
                          planner.folder.path_of(steps.key()).string(), error.what()));
      choice = &decide_and_keep(planner, cache, signature, is_capturing(planner.context), steps);
    }
  }
  if (!choice->plan) return Answer::no_plan;
  if (own()) return Answer::own_is_faster;
  try {
    execute(*choice->plan);
  } catch (const BackendError& error) {
    const std::string why = fmt::format(
        "the plan chosen for it was refused when it ran: {}; check that driver and libraries "
        "belong together ({})",
        error.what(), planner.folder.made_by());
    log.add(steps.key(), {.refused = true}, why);
    throw BackendError(fmt::format("{}: {}", steps.key(), why));
  }
  ++log.stats.calls;
  return Answer::done;
}

}  // namespace athanor::cuda
