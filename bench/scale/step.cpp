#include "bench/scale/step.h"

#include <algorithm>
#include <cmath>

#include "bench/scale/machine.h"
#include "bench/scale/model.h"
#include "dist/collectives/slice.h"

namespace athanor::scale {
namespace {

using dist::BucketRunner;
using dist::Collective;
using dist::Overlap;

// Buckets as f32 of as many bytes: the network does not see the difference, and sums of halves take longer
// to do for nothing.
struct Buckets {
  std::vector<CostBucket> cut;
  std::vector<Tensor> gradients;

  Buckets(std::span<const ParameterCost> model, int world_size, const StepOptions& options)
      : cut(cut_buckets(model, options.costs.gradient_bytes, world_size, options.bucket_bytes,
                        options.first_bucket_bytes)) {
    std::int64_t all = 0;
    for (const CostBucket& bucket : cut) all += floats(bucket, options);
    const Tensor arena = shared_by_ranks(all, static_cast<int>(options.bucket_bytes >> 10));
    std::int64_t at = 0;
    for (const CostBucket& bucket : cut) {
      gradients.push_back(dist::slice(arena, {at, at + floats(bucket, options)}));
      at += floats(bucket, options);
    }
  }

  static std::int64_t floats(const CostBucket& bucket, const StepOptions& options) {
    return bucket.elements * options.costs.gradient_bytes / static_cast<std::int64_t>(sizeof(float));
  }
};

class Step {
 public:
  Step(dist::Communicator& comm, const StepOptions& options)
      : comm_(comm),
        options_(options),
        model_(resnet50()),
        buckets_(model_, comm.world_size(), options),
        runner_(comm, options.overlap, reductions()),
        gathers_(comm, options.overlap, gathers(), true) {
    for (const ParameterCost& parameter : model_) {
      macs_ += parameter.forward_macs;
      elements_ += parameter.elements;
    }
    // As GradientSync: a sum of squares per bucket, a flag per parameter.
    const auto row = static_cast<std::int64_t>(buckets_.cut.size() * sizeof(double) + model_.size());
    agreement_ = comm.all_gather_small(Tensor::zeros({row * comm.world_size()}, {DType::u8, kCpu}));
  }

  std::vector<StepTimes::Bucket> buckets() const {
    std::vector<StepTimes::Bucket> buckets;
    double complete = seconds(macs_);
    for (const CostBucket& bucket : buckets_.cut) {
      complete += 2 * forward_seconds(bucket);
      buckets.push_back({bucket.elements * options_.costs.gradient_bytes, complete});
    }
    return buckets;
  }
  double computing() const { return 3 * seconds(macs_); }
  double updating(int shards) const {
    return static_cast<double>(elements_) / shards * options_.costs.update_bytes /
           options_.costs.memory_bytes_per_second;
  }
  double updating() const { return updating(options_.zero1 ? comm_.world_size() : 1); }

  // ZeRO-1 gathers the weights of the step before in the order of the forward pass, which waits for each.
  void run() {
    double complete = now();
    for (std::size_t b = buckets_.cut.size(); b-- > 0;) {
      if (options_.zero1) complete = std::max(complete, arrival(static_cast<int>(buckets_.cut.size() - b)));
      complete += forward_seconds(buckets_.cut[b]);
      compute_until(complete, gathers_);
    }
    if (options_.zero1) gathers_.finish();
    for (const CostBucket& bucket : buckets_.cut) {
      complete += 2 * forward_seconds(bucket);
      compute_until(complete, runner_);
      runner_.launch();
    }
    runner_.finish();
    if (options_.costs.agreement > 0) {
      compute(options_.costs.agreement);
    } else {
      comm_.run(*agreement_);
    }
    compute(updating());
  }

 private:
  double seconds(double macs) const {
    return 2 * macs * options_.costs.samples_per_rank / options_.costs.flops_per_second;
  }

  double forward_seconds(const CostBucket& bucket) const {
    double macs = 0;
    for (int i = bucket.first; i < bucket.last; ++i) macs += model_[static_cast<std::size_t>(i)].forward_macs;
    return seconds(macs);
  }

  // When the first `count` buckets of weights are there; 0 where they have been all the while.
  double arrival(int count) {
    while (gathers_.launched() < static_cast<int>(buckets_.cut.size())) gathers_.launch();
    const double before = now();
    gathers_.wait(count);
    const double after = now();
    gathers_.pump();  // begins the next
    return after > before ? after : 0;
  }

  // The processor is busy until then, and messages go on all the while: as with a thread for them. Where
  // waiting is MPI's (simulated), each message wakes this rank. One that comes later than `end` makes the
  // next bucket's launch late, not its start: buckets go one after the other, and the one before has only now
  // come to its end, or has not.
  void compute_until(double end, BucketRunner& runner) {
    while (options_.overlap == Overlap::pumped && runner.launched() > 0 && now() < end) {
      if (!comm_.transport().wait_for_any()) {
        if (simulated()) break;  // all are done
        compute(std::min(end - now(), options_.costs.pump_every));
      }
      runner.pump();
    }
    if (now() < end) compute(end - now());
  }

  std::vector<std::unique_ptr<Collective>> reductions() {
    std::vector<std::unique_ptr<Collective>> made;
    for (const Tensor& gradients : buckets_.gradients)
      made.push_back(options_.zero1 ? comm_.reduce_scatter(gradients) : comm_.all_reduce(gradients));
    return made;
  }

  // In the order of the forward pass: the first layers are in the last bucket.
  std::vector<std::unique_ptr<Collective>> gathers() {
    std::vector<std::unique_ptr<Collective>> made;
    if (!options_.zero1) return made;
    for (std::size_t b = buckets_.gradients.size(); b-- > 0;)
      made.push_back(comm_.all_gather(buckets_.gradients[b]));
    return made;
  }

  dist::Communicator& comm_;
  StepOptions options_;
  std::vector<ParameterCost> model_;
  double macs_ = 0;
  std::int64_t elements_ = 0;
  Buckets buckets_;
  BucketRunner runner_, gathers_;
  std::unique_ptr<Collective> agreement_;
};

}  // namespace

double time_alike(const std::function<void()>& run) {
  if (!simulated()) run();
  // All have the same clock only where it is made up; elsewhere they begin as soon as the last is there.
  const double begin = max_over_ranks(now()) + 1e-3;
  compute(begin - now());
  run();
  return max_over_ranks(now()) - begin;
}

StepTimes time_step(dist::Communicator& comm, const StepOptions& options) {
  Step step(comm, options);
  StepTimes times;
  times.buckets = step.buckets();
  times.alone = step.computing() + step.updating(1);
  times.step = time_alike([&] { step.run(); });
  times.exposed = times.step - step.computing() - step.updating();
  return times;
}

}  // namespace athanor::scale
