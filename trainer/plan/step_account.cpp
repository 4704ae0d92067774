#include "trainer/plan/step_account.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "data/dataset.h"
#include "kernels/account/context.h"
#include "tensor/base/error.h"
#include "trainer/classifier.h"
#include "trainer/plan/step_places.h"
#include "trainer/trainer.h"

namespace athanor {
namespace {

constexpr std::int64_t kSteps = 2;  // the last one is accounted for

/// As many images as the steps need, all alike: nothing looks at their values.
class BlankImages final : public Dataset {
 public:
  BlankImages(const ImageSpec& spec, std::int64_t size)
      : spec_(spec), size_(size), pixels_(static_cast<std::size_t>(spec.bytes())) {}

  std::int64_t size() const override { return size_; }
  const ImageSpec& spec() const override { return spec_; }
  StoredSample fetch(std::int64_t, std::vector<std::byte>&) const override {
    StoredSample sample;
    sample.bytes = pixels_;
    sample.height = spec_.height, sample.width = spec_.width, sample.channels = spec_.channels;
    return sample;
  }

 private:
  ImageSpec spec_;
  std::int64_t size_;
  std::vector<std::byte> pixels_;
};

/// Collects costs, by what the training thread is doing when they arise.
class Collector final : public StepPlaces {
 public:
  Collector(const Gpu& gpu, bool tf32) : gpu_(gpu), tf32_(tf32) {}

  void add(const KernelCost& cost) {
    if (!listens()) return;
    const Place place = place_of(cost.kernel);
    const std::size_t index = index_of(place, cost);
    AccountRow& row = rows_[index];
    ++row.launches;
    row.read += cost.bytes_read, row.written += cost.bytes_written, row.flops += cost.flops;
    const double memory = static_cast<double>(cost.bytes_read + cost.bytes_written) / gpu_.bytes_per_s,
                 compute = static_cast<double>(cost.flops) / gpu_.flops_per_s(cost.dtype, tf32_),
                 least = std::max({memory, compute, kLaunchSeconds});
    row.seconds += least;
    if (least <= std::exchange(longest_[index], std::max(least, longest_[index]))) return;
    row.roof = least == kLaunchSeconds ? "launch" : least == memory ? "memory" : "compute";
  }

  StepAccount account() && {
    StepAccount account;
    account.rows = std::move(rows_);
    AccountRow& total = account.total;
    for (const AccountRow& row : account.rows) {
      total.launches += row.launches, total.read += row.read, total.written += row.written;
      total.flops += row.flops, total.seconds += row.seconds;
      if (row.assumed) account.assumed_bytes += row.bytes();
    }
    return account;
  }

 private:
  std::size_t index_of(const Place& place, const KernelCost& cost) {
    const auto [found, fresh] =
        places_.try_emplace({place.layer, place.pass, cost.kernel, cost.assumed}, rows_.size());
    if (fresh) {
      AccountRow& row = rows_.emplace_back();
      row.layer = place.layer, row.pass = place.pass, row.kernel = cost.kernel, row.assumed = cost.assumed;
      longest_.push_back(0);
    }
    return found->second;
  }
  bool listens_to(std::int64_t attempted) const override { return attempted == kSteps - 1; }

  const Gpu& gpu_;
  bool tf32_;
  std::map<std::tuple<std::string, std::string, std::string, bool>, std::size_t> places_;
  std::vector<AccountRow> rows_;
  std::vector<double> longest_;  // of each row's launches, whose roof is the row's
};

TrainerConfig config_of(const StepPlan& plan, std::int64_t channels) {
  TrainerConfig config;
  config.program = "plan";
  config.batch_size = plan.batch_size;
  config.accumulate = plan.accumulate;
  config.precision = plan.precision;
  config.optimizer_kind = plan.optimizer;
  config.workers = 0;
  config.prefetch = 1;
  config.progress = false;
  config.pixel_mean.assign(static_cast<std::size_t>(channels), 0.5);
  config.pixel_stddev = config.pixel_mean;
  return config;
}

}  // namespace

StepAccount account_for_step(TrainerConfig config, Task& task, const Dataset& images, const Gpu& gpu,
                             bool vendor) {
  const bool tf32 = config.precision == Precision::tf32;
  if (tf32) config.precision = Precision::f32;
  config.device = kCpu;
  config.graph = GraphMode::automatic;
  config.epochs = 1;
  config.max_steps = kSteps;
  config.memory_limit = std::int64_t{1} << 50;  // activations are address space alone
  Trainer trainer(config);
  auto owned = std::make_unique<Collector>(gpu, tf32);
  Collector& collector = *owned;
  trainer.add(std::move(owned));
  AccountContext context([&](const KernelCost& cost) { collector.add(cost); });
  context.multiprocessors = gpu.multiprocessors;
  context.vendor = vendor;
  const AccountScope scope(context);
  trainer.fit(task, images);
  StepAccount account = std::move(collector).account();
  account.peak_bytes = allocator_of(kCpu).stats().peak;
  return account;
}

StepAccount account_for_step(const StepPlan& plan, const Gpu& gpu) {
  const nn::ModelOptions size = nn::model_options(plan.model, plan.size);
  const ImageSpec spec{size.image_size, size.image_width, size.in_channels, size.classes};
  const BlankImages images(spec, kSteps * plan.accumulate * plan.batch_size);
  const auto model = nn::make_model(plan.model, plan.size, 0);
  Classifier task(*model, spec.classes);
  return account_for_step(config_of(plan, spec.channels), task, images, gpu);
}

}  // namespace athanor
