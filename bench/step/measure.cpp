#include "bench/step/measure.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <tuple>
#include <utility>

#include "bench/support/quantile.h"
#include "kernels/cuda/context.h"
#include "kernels/cuda/vendor.h"
#include "tensor/base/error.h"
#include "trainer/trainer.h"

namespace athanor::bench {
namespace {

double unix_time() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

/// Trains, and calls look(timer) after each phase, and at the end.
template <class Look>
void train(const StepWorkload& workload, const StepPhases& phases, GraphMode graph, bool fused,
           const ProfiledLaunch& profiled, Device device, const Look& look) {
  StepTraining training(workload, phases.steps(), device);
  training.config.graph = graph;
  training.config.fused = fused;
  Trainer trainer(training.config);
  auto owned = std::make_unique<StepTimer>(phases, device, profiled, look);
  const StepTimer& timer = *owned;
  trainer.add(std::move(owned));
  const FitReport report = trainer.fit(*training.task, *training.images);
  ATH_CHECK(graph != GraphMode::on || report.graph_launches > 0,
            "bench_step: no step was launched as a graph within {} steps", phases.steps());
  look(timer);
}

StepRates rates_of(const StepTimer& timer, std::int64_t batch) {
  double all_ms = 0;
  for (const double ms : timer.steady_ms) all_ms += ms;
  const auto steps = std::ssize(timer.steady_ms);
  return {.steps = steps,
          .images_per_s = 1e3 * static_cast<double>(batch * steps) / all_ms,
          .step_ms = quantile(timer.steady_ms, 0.5),
          .p10_ms = quantile(timer.steady_ms, 0.1),
          .p90_ms = quantile(timer.steady_ms, 0.9),
          .host_ms = quantile(timer.host_ms, 0.5),
          .syncs = timer.steady_syncs,
          .allocations = timer.steady_allocations,
          .plans = timer.steady_plans};
}

bool is_accounted(cuda::Queued kind) {
  return kind == cuda::Queued::kernel || kind == cuda::Queued::vendor;
}

/// Rows under their layer, pass and name, in the order of first use.
class Rows {
 public:
  StepRow& of(const std::string& layer, const std::string& pass, const std::string& name) {
    const auto [found, fresh] = places_.try_emplace({layer, pass, name}, rows_.size());
    if (fresh) {
      StepRow& row = rows_.emplace_back();
      row.layer = layer, row.pass = pass, row.name = name;
    }
    return rows_[found->second];
  }
  std::vector<StepRow> take() && { return std::move(rows_); }

 private:
  std::map<std::tuple<std::string, std::string, std::string>, std::size_t> places_;
  std::vector<StepRow> rows_;
};

/// Where a 1 x 1 convolution is our own product, the account has it as the vendor's convolution.
void join_products(std::vector<StepRow>& rows) {
  for (StepRow& product : rows) {
    if (product.name != "matmul" || product.accounted > 0) continue;
    for (StepRow& conv : rows) {
      if (conv.layer != product.layer || conv.pass != product.pass || conv.launches > 0 ||
          !conv.name.starts_with("conv2d"))
        continue;
      product.accounted += conv.accounted, product.bytes += conv.bytes, product.flops += conv.flops;
      conv.accounted = 0;
    }
  }
  std::erase_if(rows, [](const StepRow& row) { return row.launches == 0 && row.accounted == 0; });
}

std::vector<StepRow> joined(const StepAccount& account, const std::vector<TimedLaunch>& launches) {
  Rows rows;
  for (const AccountRow& from : account.rows) {
    StepRow& row = rows.of(from.layer, from.pass, from.kernel);
    row.kind = from.assumed ? cuda::Queued::vendor : cuda::Queued::kernel;
    row.accounted += from.launches, row.bytes += from.bytes(), row.flops += from.flops;
  }
  std::map<std::tuple<std::string, std::string, std::string>, std::map<std::int64_t, double>> us;
  const std::int64_t last = launches.empty() ? 0 : launches.back().step;
  for (const TimedLaunch& launch : launches) {
    StepRow& row = rows.of(launch.layer, launch.pass, launch.name);
    row.kind = launch.kind;
    us[{launch.layer, launch.pass, launch.name}][launch.step] += launch.us;
    if (launch.step != last) continue;
    ++row.launches;
    if (!is_accounted(launch.kind)) row.bytes += launch.bytes;
  }
  for (const auto& [place, by_step] : us) {
    std::vector<double> values;
    for (const auto& one : by_step) values.push_back(one.second);
    rows.of(std::get<0>(place), std::get<1>(place), std::get<2>(place)).us = quantile(values, 0.5);
  }
  std::vector<StepRow> all = std::move(rows).take();
  join_products(all);
  return all;
}

StepAccount account_of(const StepWorkload& workload, bool fused, Device device) {
  Gpu gpu = gpu_named("h200");  // its speed plays no part
  gpu.multiprocessors = device_info(device).multiprocessors;
  StepTraining training(workload, 2, kCpu);
  training.config.fused = fused;
  return account_for_step(training.config, *training.task, *training.images, gpu, cuda::has_vendor());
}

ProfiledLaunch heaviest_launch(const StepAccount& account, const std::string& name) {
  const AccountRow* best = nullptr;
  for (const AccountRow& row : account.rows) {
    if (row.kernel == name && (!best || row.bytes() / row.launches > best->bytes() / best->launches))
      best = &row;
  }
  ATH_CHECK(best, "--profile-launch: must be a kernel of the step, but '{}' is not in its account", name);
  return {best->layer, best->pass, best->kernel};
}

/// With the best of each signature's times.
std::vector<PlanTimes> judged(const std::map<std::string, PlanTimes>& found) {
  std::vector<PlanTimes> all;
  for (const auto& [signature, measured] : found) {
    PlanTimes& times = all.emplace_back(measured);
    const auto count = std::min(times.ms.size(), static_cast<std::size_t>(cuda::VendorOptions().candidates));
    const auto least = [&](std::size_t of) {
      return of == 0
                 ? std::numeric_limits<double>::infinity()
                 : *std::min_element(times.ms.begin(), times.ms.begin() + static_cast<std::ptrdiff_t>(of));
    };
    times.chosen_ms = least(count), times.best_ms = least(times.ms.size());
    if (times.own_ms > 0) {
      times.chosen_ms = std::min(times.chosen_ms, times.own_ms);
      times.best_ms = std::min(times.best_ms, times.own_ms);
    }
  }
  return all;
}

}  // namespace

std::vector<StepRow> StepResult::kernels() const {
  std::map<std::pair<std::string, cuda::Queued>, StepRow> sums;
  for (const StepRow& row : rows) {
    StepRow& sum = sums[{row.name, row.kind}];
    sum.name = row.name, sum.kind = row.kind;
    sum.launches += row.launches, sum.us += row.us, sum.accounted += row.accounted;
    sum.bytes += row.bytes, sum.flops += row.flops;
  }
  std::vector<StepRow> all;
  for (auto& one : sums) all.push_back(std::move(one.second));
  std::stable_sort(all.begin(), all.end(), [](const StepRow& a, const StepRow& b) { return a.us > b.us; });
  return all;
}

std::vector<StepRow> StepResult::off_account() const {
  std::vector<StepRow> off;
  if (timed_step_ms == 0) return off;
  for (const StepRow& row : rows) {
    if (is_accounted(row.kind) && row.launches != row.accounted) off.push_back(row);
  }
  return off;
}

StepResult measure_step(const StepWorkload& workload, const StepOptions& options, Device device) {
  StepResult result;
  result.workload = workload;
  result.began_s = unix_time();
  cuda::Vendor& vendor = cuda_context(device).vendor();
  const VendorStats before = vendor.stats();
  if (!options.profile_launch.empty() || options.plain)
    result.account = account_of(workload, options.fused, device);
  if (!options.profile_launch.empty())
    result.profiled = heaviest_launch(result.account, options.profile_launch);
  const auto tell = [&] {
    result.vendor = vendor.stats() - before;
    result.ended_s = unix_time();
    if (options.on_phase) options.on_phase(result);
  };
  if (options.plain) {
    const auto look = [&](const StepTimer& timer) {
      if (!timer.steady_ms.empty()) result.plain = rates_of(timer, workload.batch);
      result.timed_step_ms = quantile(timer.launches_ms, 0.5);
      result.profiled_ran = timer.profiled_launch_ran;
      if (!timer.launches_ms.empty()) result.rows = joined(result.account, timer.launches);
      result.notes = timer.notes;
      tell();
    };
    train(workload, options.phases, GraphMode::off, options.fused, result.profiled, device, look);
  }
  if (options.graph) {
    StepPhases phases = options.phases;
    phases.warm = std::max<std::int64_t>(phases.warm, 8);  // the first, those on the graphs' memory, captures
    phases.lead = phases.launches = 0;
    try {
      const std::vector<std::string> before_graphs = result.notes;
      train(workload, phases, GraphMode::on, options.fused, {}, device, [&](const StepTimer& timer) {
        if (!timer.steady_ms.empty()) result.graph = rates_of(timer, workload.batch);
        result.notes = before_graphs;
        result.notes.insert(result.notes.end(), timer.notes.begin(), timer.notes.end());
        tell();
      });
    } catch (const ArgumentError& error) {  // it cannot be captured
      result.why_no_graph = error.what();
      result.graph.reset();
      tell();
    }
  }
  return result;
}

std::vector<PlanTimes> measure_plans(const StepWorkload& workload, int most, Device device,
                                     const std::function<void(const std::vector<PlanTimes>&)>& on_signature) {
  ATH_CHECK(cuda::has_vendor(), "--plans: this build has no cuDNN, so there are no plans to measure");
  cuda::Vendor& vendor = cuda_context(device).vendor();
  const cuda::VendorOptions saved = vendor.options();
  std::map<std::string, PlanTimes> found;
  cuda::VendorOptions options = saved;
  options.candidates = most;
  options.plan_directory.clear();
  options.on_measured = [&](const cuda::MeasuredPlan& one) {
    PlanTimes& times = found[one.signature];
    if (one.candidate == 0) times = {};  // made anew, in another way
    times.signature = one.signature;
    if (one.candidate >= 0) {
      times.ms.push_back(one.ms);
    } else {  // the last
      times.own_ms = one.ms;
      if (on_signature) on_signature(judged(found));
    }
  };
  vendor.clear();
  vendor.set_options(options);
  try {
    train(workload, {.warm = 2, .steady = 0, .alone = 0, .lead = 0, .launches = 0}, GraphMode::off, true, {},
          device, [](const StepTimer&) {});
  } catch (...) {
    vendor.set_options(saved);
    throw;
  }
  vendor.set_options(saved);
  vendor.clear();
  return judged(found);
}

}  // namespace athanor::bench
