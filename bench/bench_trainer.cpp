// What a Trainer costs: its steps beside those of a loop written by hand over the same parts (the lines of
// optim/step.h), of about a millisecond each. Both train the same weights; they take turns, round by round.
//
//     bench_trainer [ROUNDS]
//
// Prints the median step of each, their ratio, and how far ratios of single rounds are apart. Ends with 1
// where the Trainer's step takes more than 1 % longer, or the weights differ.
//
//     bench_trainer ROUNDS reports
//
// The Trainer with --logger json,csv,tensorboard, every 50th step and every single one, with each --profile,
// and with all loggers and --profile simple, beside itself without: the mean step, because one in 50 is what
// differs. Files lie in the folder for temporary ones.

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <iterator>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <unistd.h>

#include "autograd/loss.h"
#include "autograd/shape.h"
#include "bench/support/quantile.h"
#include "data/preprocess.h"
#include "data/synthetic.h"
#include "kernels/cpu/context.h"
#include "nn/linear.h"
#include "optim/sgd.h"
#include "optim/step.h"
#include "trainer/metrics/loss_and_accuracy.h"
#include "trainer/trainer.h"

namespace athanor::bench {
namespace {

constexpr ImageSpec kSpec{16, 16, 1, 10};
constexpr std::int64_t kBatch = 64, kSteps = 200;
constexpr std::size_t kWarm = 10;
constexpr double kMaxOver = 0.01;

class Net final : public nn::Module {
 public:
  Net() {
    register_module("hidden", hidden);
    register_module("out", out);
    initialize(1);
  }
  Tensor forward(const Tensor& x) override { return out(hidden(flatten(x))); }
  nn::Linear hidden{256, 2048, {.activation = Activation::relu}};
  nn::Linear out{2048, 10};
};

struct Result {
  double step_s = 0, mean_s = 0, cpu_s = 0;
  std::uint64_t weights = 0;
};

/// When each step ended; the median of what lies between.
class Ends {
 public:
  Ends() { ends_.reserve(kSteps + 1); }
  void mark() {
    ends_.push_back(Clock::now());
    cpu_ended_ = std::clock();
    if (ends_.size() == kWarm + 1) cpu_began_ = cpu_ended_;
  }
  double median() const {
    std::vector<double> seconds;
    for (std::size_t i = kWarm + 1; i < ends_.size(); ++i)
      seconds.push_back(std::chrono::duration<double>(ends_[i] - ends_[i - 1]).count());
    return quantile(std::move(seconds), 0.5);
  }

  double mean() const {
    return std::chrono::duration<double>(ends_.back() - ends_[kWarm]).count() /
           static_cast<double>(ends_.size() - 1 - kWarm);
  }

  /// Of all threads, which other programs on a busy machine lengthen less than wall time.
  double mean_cpu() const {
    return static_cast<double>(cpu_ended_ - cpu_began_) / CLOCKS_PER_SEC /
           static_cast<double>(ends_.size() - 1 - kWarm);
  }

 private:
  using Clock = std::chrono::steady_clock;
  std::vector<Clock::time_point> ends_;
  std::clock_t cpu_began_ = 0, cpu_ended_ = 0;
};

Result by_hand(const Dataset& train) {
  Net net;
  net.train();
  Loader loader(train,
                {.batch_size = kBatch, .shuffle = true, .drop_last = true, .training = true, .epochs = 1});
  const Preprocess preprocess(kSpec, measure(train), DType::f32, kCpu);
  ParameterArena arena(net.parameters(), net.buffers());
  GradientMeter meter(arena);
  const auto group = [](bool decay) {
    Sgd::Group made;
    made.parameters = [=](const Parameter& p) { return (p.tensor.rank() >= 2) == decay; };
    made.options = {.momentum = 0.9f, .weight_decay = decay ? 5e-4f : 0, .nesterov = true};
    return made;
  };
  Sgd optimizer(arena, std::vector<Sgd::Group>{group(true), group(false)}, 0);
  StepBuffer step(kCpu, {.seed = 0});
  MetricSums metrics(kCpu);
  const Schedule schedule = schedules::constant(0.01);
  CpuContext& context = cpu_context();
  const BoundStep bound(context, step);
  Batch batch;
  Ends ends;
  for (std::int64_t i = 0; i < kSteps; ++i) {
    arena.buffers().snapshot();
    metrics.snapshot();
    arena.zero_grad();
    context.set_random_ops(0);
    loader.next(batch);
    {
      const Tensor logits = net(preprocess(batch, 0, true));
      const CrossEntropy loss = cross_entropy_of_each(logits, batch.labels);
      metrics.add("loss", LossAndAccuracy(), loss.losses, logits, batch.labels);
      backward_scaled(loss.mean, step);
    }
    meter.measure(step);
    optimizer.set_learning_rates(step, schedule);
    optimizer.step(step);
    arena.buffers().restore_if_skipped(step);
    metrics.restore_if_skipped(step);
    finish_step(step);
    ends.mark();
  }
  return {ends.median(), ends.mean(), 0, arena.weights_hash()};
}

/// What a run writes about itself.
struct Reports {
  const char* name;
  std::int64_t log_every = 0;  ///< of all loggers; 0: there is none
  Profile profile = Profile::none;
};
constexpr Reports kReports[] = {{"none"},
                                {"all loggers, one step in 50", 50},
                                {"all loggers, every step", 1},
                                {"--profile simple", 0, Profile::simple},
                                {"--profile advanced", 0, Profile::advanced},
                                {"--profile trace", 0, Profile::trace},
                                {"all loggers, one step in 50, and --profile simple", 50, Profile::simple}};
constexpr int kKinds = static_cast<int>(std::size(kReports));

Result by_trainer(const Dataset& train, const Dataset& held_out, const Reports& reports = kReports[0]) {
  class Watch final : public Callback {
   public:
    explicit Watch(Ends& ends) : ends_(ends) {}
    void on_step_end(Trainer&, const StepInfo&) override { ends_.mark(); }

   private:
    Ends& ends_;
  };
  TrainerConfig config;
  config.epochs = 1;
  config.batch_size = kBatch;
  config.schedule = [](double, std::int64_t) { return schedules::constant(0.01); };
  const auto folder = std::filesystem::temp_directory_path() / fmt::format("bench_trainer.{}", ::getpid());
  if (reports.log_every > 0 || reports.profile == Profile::trace) {
    config.run_dir = folder;
    config.checkpoint_every = kSteps + 1;  // none in the way
    config.log_json = config.log_csv = config.log_tensorboard = reports.log_every > 0;
    config.log_every = std::max<std::int64_t>(reports.log_every, 1);
  }
  config.profile = reports.profile;
  Net net;
  Ends ends;
  Trainer trainer(config);
  trainer.add(std::make_unique<Watch>(ends));
  const FitReport report = trainer.fit(net, train, held_out);
  std::filesystem::remove_all(folder);
  return {ends.median(), ends.mean(), ends.mean_cpu(), report.weights_hash};
}

int compare(int rounds) {
  const auto train = synthetic(kSpec, kBatch * kSteps, 1), held_out = synthetic(kSpec, kBatch, 2);
  std::vector<double> hand, trainer, ratios;
  bool equal = true;
  for (int i = 0; i < rounds; ++i) {
    Result a, b;
    if (i % 2 == 0) a = by_hand(*train);
    b = by_trainer(*train, *held_out);
    if (i % 2 == 1) a = by_hand(*train);
    hand.push_back(a.step_s);
    trainer.push_back(b.step_s);
    ratios.push_back(b.step_s / a.step_s);
    equal = equal && a.weights == b.weights;
  }
  const double ratio = quantile(ratios, 0.5);
  fmt::print(
      "by hand {:.1f} us, Trainer {:.1f} us a step; ratio {:.4f} (of rounds: {:.4f} to {:.4f}); weights {}\n",
      1e6 * quantile(hand, 0.5), 1e6 * quantile(trainer, 0.5), ratio,
      *std::min_element(ratios.begin(), ratios.end()), *std::max_element(ratios.begin(), ratios.end()),
      equal ? "equal" : "differ");
  return equal && ratio <= 1 + kMaxOver ? 0 : 1;
}

int compare_reports(int rounds) {
  const auto train = synthetic(kSpec, kBatch * kSteps, 1), held_out = synthetic(kSpec, kBatch, 2);
  std::vector<double> wall[kKinds], ratios[kKinds], cpu_ratios[kKinds];
  bool equal = true;
  for (int i = 0; i < rounds; ++i) {
    Result of[kKinds];
    for (int k = 0; k < kKinds; ++k) {  // each comes first, second, ... in turn
      const int turn = (i + k) % kKinds;
      of[turn] = by_trainer(*train, *held_out, kReports[turn]);
    }
    for (int k = 0; k < kKinds; ++k) {
      wall[k].push_back(of[k].mean_s);
      ratios[k].push_back(of[k].mean_s / of[0].mean_s);
      cpu_ratios[k].push_back(of[k].cpu_s / of[0].cpu_s);
      equal = equal && of[k].weights == of[0].weights;
    }
  }
  for (int k = 0; k < kKinds; ++k)
    fmt::print("{:<50} {:7.1f} us a step, ratio {:.4f}; of CPU time {:.4f}\n", kReports[k].name,
               1e6 * quantile(wall[k], 0.5), quantile(ratios[k], 0.5), quantile(cpu_ratios[k], 0.5));
  fmt::print("weights {}\n", equal ? "equal" : "differ");
  return equal ? 0 : 1;
}

}  // namespace
}  // namespace athanor::bench

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::max(1, std::atoi(argv[1])) : 31;
  const bool reports = argc > 2 && std::string_view(argv[2]) == "reports";
  return reports ? athanor::bench::compare_reports(rounds) : athanor::bench::compare(rounds);
}
