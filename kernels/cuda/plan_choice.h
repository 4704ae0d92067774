#pragma once

#include <cstddef>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "kernels/cuda/autotune.h"
#include "kernels/cuda/context.h"
#include "kernels/cuda/found.h"
#include "kernels/cuda/plan_folder.h"
#include "kernels/cuda/plan_ways.h"
#include "kernels/cuda/vendor.h"
#include "tensor/base/error.h"
#include "tensor/cuda/allocator.h"

// How a plan is chosen among the vendor's candidates and our own kernel, whatever a plan is.

namespace athanor::cuda {

/// What was decided about a signature.
template <class Plan> struct Choice {
  std::optional<Plan> plan = {};     ///< nothing where the vendor has none
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

// The functions below take a call of a vendor's operation:
//   signature                what its plan is kept under, here and, as str(), between runs: it names all that
//                            a measurement depends on but the device and what plans are made by
//   find(most, way), read(text)  what the vendor has, as Found, and a plan from what write(plan) made of it
//   way()                    where it stands in which way plans that run are made; null: they are made in one
//   accept(plan)             whether a plan does what it must, tried on the device; nothing: the values there
//                            do not tell. Not asked in a capture
//   run(plan, to), run_own(to)   queue all of the work by a plan, and by our own kernel
//   result(), accumulates()  where it goes, and whether it is added to what is there
//   ours_is_next()           whether our own kernel runs where there is no plan; false: another signature of
//                            the vendor's does

namespace detail {

/// What a library or the device refused about one signature's plans.
struct Trouble {
  int refused = 0, without_memory = 0;
  std::string first = {};

  /// Whether f() ran.
  template <class F> bool attempt(F&& f) {
    try {
      f();
      return true;
    } catch (const BackendError& error) {
      add(refused, error.what());
    } catch (const OutOfMemoryError& error) {
      add(without_memory, error.what());
    }
    return false;
  }
  void add(int& count, const std::string& why) {
    ++count;
    if (first.empty()) first = why;
  }
};

/// How a choice is made.
struct Manner {
  bool measures = false, capturing = false;
  bool runs_guess = false;  ///< what is not measured must have run once
};

/// What runs in the end.
enum class Runs : unsigned char { plan, another_signature, own };

/// Says what became of a signature some of whose `tried` plans gave trouble.
void report(const Planner& planner, const std::string& signature, const Trouble& trouble, std::size_t tried,
            Runs runs);

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

/// Times every plan, and our own kernel; the fastest plan becomes the choice.
template <class Plan, class Call>
void choose_fastest(const VendorOptions& options, std::vector<Plan>& plans, Stopwatch& watch,
                    const TuningTime& timed, const Call& call, const Tensor& to, Choice<Plan>& choice,
                    Trouble& trouble) {
  const auto measured = [&](int candidate, auto&& run, Trouble& heard) {
    timed.tick();
    double ms = Stopwatch::kTooSlow;
    if (!heard.attempt([&] { ms = watch.median_ms(choice.vendor_ms, run); })) ms = Stopwatch::kTooSlow;
    if (options.on_measured)
      options.on_measured({call.signature.str(), candidate,
                           ms < Stopwatch::kTooSlow ? ms : std::numeric_limits<double>::infinity()});
    return ms;
  };
  std::size_t best = 0;
  for (std::size_t i = 0; i < plans.size(); ++i) {
    const auto run = [&] { call.run(plans[i], to); };
    const double ms = measured(static_cast<int>(i), run, trouble);
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
  const auto run_own = [&] { call.run_own(to); };
  choice.own_ms = measured(-1, run_own, ours);
  choice.certain = choice.certain && ours.without_memory == 0;
}

/// Chooses among the plans that do what they must, on the device.
template <class Plan, class Call>
void choose_among(const Planner& planner, std::vector<Plan>& plans, const Manner& manner,
                  const TuningTime& timed, const Call& call, Choice<Plan>& choice, Trouble& trouble) {
  const OutsideGraphPools ordinary(planner.context.device());
  bool failed = false;  // a plan that was promised, or not judged: it may do the next time
  std::erase_if(plans, [&](const Plan& plan) {
    std::optional<bool> accepted;
    if (!trouble.attempt([&] { accepted = call.accept(plan); }) || !accepted) failed = true;
    return !accepted.value_or(false);
  });
  if (plans.empty()) {
    choice.certain = choice.certain && !failed;
    return;
  }
  std::optional<Stopwatch> watch;
  Tensor to = call.result();
  const auto prepare = [&] {
    watch.emplace(planner.context);
    // What is added to must not be added to once per measurement.
    if (call.accumulates()) to = empty_like(to);
  };
  const auto run_guess = [&] { call.run(plans[0], call.accumulates() ? empty_like(call.result()) : to); };
  if (manner.measures && Trouble().attempt(prepare)) {
    ++planner.log.stats.tuned;
    choose_fastest(planner.options, plans, *watch, timed, call, to, choice, trouble);
  } else {
    choice.certain = choice.certain && !manner.measures;
    if (!manner.runs_guess || trouble.attempt(run_guess)) choice.plan = std::move(plans[0]);
  }
  choice.certain = choice.certain && trouble.without_memory == 0;
}

/// What came of a signature's plans, made in one way.
template <class Plan> struct Tried {
  Choice<Plan> choice;
  Trouble trouble;
  std::size_t plans = 0;
};

template <class Plan, class Call>
Tried<Plan> try_plans(const Planner& planner, const Manner& manner, PlanWay way, const TuningTime& timed,
                      const Call& call) {
  Tried<Plan> tried;
  auto& [choice, trouble, count] = tried;
  Found<Plan> found;
  const auto most = manner.measures ? static_cast<std::size_t>(planner.options.candidates) : 1;
  const bool asked = trouble.attempt([&] { found = call.find(most, way); });
  std::vector<Plan>& plans = found.plans;
  if (plans.empty() && !found.certain) trouble.add(trouble.refused, found.why);
  choice.certain = asked && found.certain;
  choice.provisional = manner.capturing;
  count = plans.size();
  if (!manner.capturing) {
    choose_among(planner, plans, manner, timed, call, choice, trouble);
  } else if (!plans.empty()) {
    choice.plan = std::move(plans[0]);
  }
  return tried;
}

}  // namespace detail

/// Decides about a signature that nothing is known of. Where all of its plans are refused, those made in the
/// other ways are tried, and the way that runs is kept for all signatures from then on. Throws nothing that a
/// library or the device says, but reports it. `runs_guess`: what is not measured is run once, too.
template <class Plan, class Call>
Choice<Plan> decide(const Planner& planner, bool capturing, bool runs_guess, const Call& call) {
  const VendorOptions& options = planner.options;
  const bool measures = options.autotune && !planner.context.deterministic && !capturing;
  const TuningTime timed(planner.context, planner.log, planner.folder.path(), measures);
  PlanWay* const known = call.way();
  std::optional<detail::Tried<Plan>> tried;  // in the first way, or in the one that runs
  std::string refusal;
  const auto try_way = [&](PlanWay way) {
    detail::Tried<Plan> one =
        detail::try_plans<Plan>(planner, {measures, capturing, runs_guess}, way, timed, call);
    // In the first way, a signature may have no plan at all. Another one is proven by a plan alone.
    const bool runs = one.choice.plan || (!tried && one.trouble.refused == 0);
    if (!tried) refusal = one.trouble.first;
    if (!tried || runs) tried = std::move(one);
    return runs;
  };
  if (!known || capturing) {
    try_way(known ? *known : PlanWay::properties);
  } else if (const std::optional<PlanWay> way = way_that_runs(*known, try_way); way && way != *known) {
    planner.log.another_way(*known, *way, call.signature.str(), refusal);
    *known = *way;
  }
  auto& [choice, trouble, plans] = *tried;
  if (known && choice.plan) planner.log.made(*known);
  detail::report(planner, call.signature.str(), trouble, plans,
                 choice.plan           ? detail::Runs::plan
                 : call.ours_is_next() ? detail::Runs::own
                                       : detail::Runs::another_signature);
  return std::move(choice);
}

/// The same, and keeps it in the cache, and in the folder where that saves the next run something: a guess is
/// made again as quickly as it is read.
template <class Plan, class Signature, class Call>
Choice<Plan>& decide_and_keep(const Planner& planner, BoundedCache<Signature, Choice<Plan>>& cache,
                              bool capturing, const Call& call, bool runs_guess = false) {
  Choice<Plan> choice = decide<Plan>(planner, capturing, runs_guess, call);
  ++planner.log.stats.plans_made;
  const auto save = [&] {
    planner.folder.save(call.signature.str(),
                        {choice.plan ? write(*choice.plan) : std::string(), choice.vendor_ms, choice.own_ms});
  };
  const bool worth = choice.certain && !choice.provisional && (!choice.plan || choice.vendor_ms > 0);
  if (worth) detail::Trouble().attempt(save);
  return cache.insert(call.signature, std::move(choice));
}

/// What to do about a signature: as decided before, in this process or, by its files, in another; else
/// decided now.
template <class Plan, class Signature, class Call>
Choice<Plan>& choose(const Planner& planner, BoundedCache<Signature, Choice<Plan>>& cache, const Call& call) {
  Choice<Plan>* const known = cache.find(call.signature);
  if (known && !known->provisional) return *known;
  const bool capturing = is_capturing(planner.context);
  if (known && capturing) return *known;

  const PlanFolder& folder = planner.folder;
  VendorStats& stats = planner.log.stats;
  auto [lookup, stored] = folder.load(call.signature.str());
  if (lookup == Lookup::found) {
    Choice<Plan> choice{.vendor_ms = stored.vendor_ms, .own_ms = stored.own_ms};
    if (!stored.plan.empty())
      detail::Trouble().attempt([&, &text = stored.plan] { choice.plan = call.read(text); });
    choice.untried = choice.plan.has_value();
    if (choice.plan.has_value() != stored.plan.empty()) {
      ++stats.plans_loaded;
      return cache.insert(call.signature, std::move(choice));
    }
    lookup = Lookup::rejected;
  }
  if (lookup == Lookup::rejected) ++stats.disk_rejected;
  if (lookup == Lookup::outdated) ++stats.disk_outdated;
  if (lookup == Lookup::missing && folder.enabled()) ++stats.disk_misses;
  return decide_and_keep(planner, cache, capturing, call);
}

enum class Answer : unsigned char { done, no_plan, own_is_faster };

/// Runs a call by the plan chosen for it. Where ours may be preferred and was measured to be faster, nothing
/// is done. A plan from a file that does not run here is reported and chosen again, once. So is one that was
/// chosen here and is refused later, where plans can be made in another way; if none of those runs, that is
/// an error that names the signature.
template <class Plan, class Signature, class Call>
Answer serve(const Planner& planner, BoundedCache<Signature, Choice<Plan>>& cache, bool may_prefer_own,
             const Call& call) {
  Choice<Plan>* choice = &choose(planner, cache, call);
  VendorLog& log = planner.log;
  for (bool first_refusal = true;;) {
    if (!choice->plan) return Answer::no_plan;
    if (may_prefer_own && choice->own_is_faster()) return Answer::own_is_faster;
    const bool from_file = std::exchange(choice->untried, false);
    try {
      call.run(*choice->plan, call.result());
      ++log.stats.calls;
      return Answer::done;
    } catch (const BackendError& error) {
      const std::string key = call.signature.str();
      if (from_file) {
        ++log.stats.disk_rejected;
        log.add(key, {.refused = true},
                fmt::format("the plan of {} was refused when it ran, and another is chosen: {}",
                            planner.folder.path_of(key).string(), error.what()));
        choice = &decide_and_keep(planner, cache, is_capturing(planner.context), call);
      } else {
        if (std::exchange(first_refusal, false) && call.way() && !is_capturing(planner.context)) {
          choice = &decide_and_keep(planner, cache, false, call, true);
          if (choice->plan) continue;
        }
        const std::string why = fmt::format(
            "the plan chosen for it was refused when it ran: {}; check that driver and libraries "
            "belong together ({})",
            error.what(), planner.folder.made_by());
        log.add(key, {.refused = true}, why);
        throw BackendError(fmt::format("{}: {}", key, why));
      }
    }
  }
}

}  // namespace athanor::cuda
