// bench_step's launches and bytes, in the emulator: those of the account, and, in the race build, those that
// the emulator counts.
#include <map>
#include <memory>
#include <string>

#include "bench/step/measure.h"
#include "simt/emulator/counters.h"
#include "tensor/base/error.h"
#include "tests/cuda/device.h"
#include "trainer/trainer.h"

namespace athanor::bench_step_test {

using bench::StepOptions;
using bench::StepPhases;
using bench::StepResult;
using bench::StepRow;

using BenchStep = test::DeviceTest;

constexpr StepPhases kFew{.warm = 3, .steady = 2, .alone = 2, .lead = 1, .launches = 2};

bench::StepWorkload small(const std::string& text, std::int64_t image_size) {
  bench::StepWorkload workload = bench::step_workload(text);
  workload.image_size = image_size;
  return workload;
}

void expect_rates(const bench::StepRates& rates) {
  EXPECT_EQ(rates.steps, kFew.steady);
  EXPECT_EQ(rates.syncs, 0);
  EXPECT_EQ(rates.allocations, 0);
  EXPECT_EQ(rates.plans, 0);
  EXPECT_GT(rates.images_per_s, 0);
  EXPECT_LE(rates.p10_ms, rates.step_ms);
  EXPECT_LE(rates.step_ms, rates.p90_ms);
}
void expect_quiet(const bench::StepRates& rates) {
  expect_rates(rates);
  EXPECT_GT(rates.host_ms, 0);
}

/// Returns how many.
std::int64_t expect_launches_of_the_account(const bench::StepWorkload& workload, bool fused = true) {
  SCOPED_TRACE(workload.name());
  const StepResult result =
      bench::measure_step(workload, {.phases = kFew, .graph = false, .fused = fused}, test::device());
  EXPECT_TRUE(result.plain.has_value());
  if (result.plain) expect_quiet(*result.plain);
  std::int64_t launches = 0, bytes = 0;
  for (const StepRow& row : result.rows) {
    if (row.kind != cuda::Queued::kernel) continue;
    EXPECT_EQ(row.launches, row.accounted) << row.layer << " " << row.pass << " " << row.name;
    EXPECT_GE(row.us, 0) << row.name;
    launches += row.launches, bytes += row.bytes;
  }
  EXPECT_EQ(launches, result.account.total.launches);
  EXPECT_EQ(bytes, result.account.total.bytes());
  EXPECT_GT(launches, 30);
  EXPECT_TRUE(result.off_account().empty());
  return launches;
}

TEST_F(BenchStep, LaunchesAreThoseOfTheAccount) {
  for (const char* precision : {"f16", "f32"}) {
    expect_launches_of_the_account(small(std::string("lenet5:4:") + precision, 16));
    expect_launches_of_the_account(small(std::string("resnet20:4:") + precision, 8));
  }
  expect_launches_of_the_account(small("lenet5:4:f16:sgd:augment", 16));
}
TEST_F(BenchStep, WithoutFusionThereAreMoreLaunches) {
  const bench::StepWorkload workload = small("lenet5:4:f16", 16);
  EXPECT_GT(expect_launches_of_the_account(workload, false), expect_launches_of_the_account(workload));
}
TEST_F(BenchStep, LaunchesOfMuonAreThoseOfTheAccount) {
  if (test::kChecksEveryAccess) GTEST_SKIP() << "it takes minutes where each access is checked";
  expect_launches_of_the_account(small("cifarnet:2:f16:muon", 25));
}

TEST_F(BenchStep, KernelsAreTheSumsOfTheirRows) {
  const StepResult result =
      bench::measure_step(small("resnet20:4:f16", 8), {.phases = kFew, .graph = false}, test::device());
  std::map<std::string, std::int64_t> launches;
  for (const StepRow& row : result.rows) launches[row.name] += row.launches;
  double before = 1e30;
  for (const StepRow& kernel : result.kernels()) {
    EXPECT_EQ(kernel.launches, launches.at(kernel.name)) << kernel.name;
    EXPECT_LE(kernel.us, before) << kernel.name << ": the longest come first";
    before = kernel.us;
  }
  const auto row = [&](const char* layer, const char* pass, const char* name) {
    for (const StepRow& one : result.rows) {
      if (one.layer == layer && one.pass == pass && one.name == name) return one.launches;
    }
    return std::int64_t{0};
  };
  EXPECT_GE(row("conv1", "forward", "conv2d_forward"), 1);
  EXPECT_GE(row("conv1", "backward", "conv2d_backward_weights"), 1);
  EXPECT_EQ(row("bn1", "forward", "batch_norm"), 1);
  EXPECT_GE(row("", "update", "sgd_update"), 1);
}

TEST_F(BenchStep, StepsAreLaunchedAsGraphs) {
  StepOptions options{.phases = kFew, .plain = false};
  const StepResult result = bench::measure_step(small("lenet5:4:f16", 16), options, test::device());
  EXPECT_EQ(result.why_no_graph, "");
  EXPECT_FALSE(result.plain.has_value());
  ASSERT_TRUE(result.graph.has_value());
  expect_quiet(*result.graph);
}

// What a run that is cut off has by then.
TEST_F(BenchStep, EachPhaseTellsWhatThereIs) {
  struct Told {
    bool plain, rows, graph;
    double host_ms;
  };
  std::vector<Told> told;
  StepOptions options{.phases = kFew};
  options.on_phase = [&](const StepResult& so_far) {
    told.push_back({so_far.plain.has_value(), !so_far.rows.empty(), so_far.graph.has_value(),
                    so_far.plain ? so_far.plain->host_ms : 0});
    if (so_far.plain) expect_rates(*so_far.plain);
  };
  bench::measure_step(small("lenet5:4:f16", 16), options, test::device());
  ASSERT_EQ(told.size(), 8u);  // the first step, the steady ones, those alone, the end: queued and as graphs
  for (std::size_t i = 0; i < told.size(); ++i) {
    EXPECT_EQ(told[i].plain, i >= 1) << i;
    EXPECT_EQ(told[i].host_ms > 0, i >= 2) << i;
    EXPECT_EQ(told[i].rows, i >= 3) << i;
    EXPECT_EQ(told[i].graph, i >= 5) << i;
  }
}

TEST_F(BenchStep, AProfilerSeesTheLaunchWithTheMostBytes) {
  StepOptions options{.phases = kFew, .graph = false, .profile_launch = "conv2d_forward"};
  const StepResult result = bench::measure_step(small("lenet5:4:f32", 16), options, test::device());
  EXPECT_EQ(result.profiled.name, "conv2d_forward");
  EXPECT_TRUE(result.profiled_ran);
  for (const AccountRow& row : result.account.rows) {
    if (row.kernel != "conv2d_forward" || row.layer == result.profiled.layer) continue;
    for (const AccountRow& seen : result.account.rows) {
      if (seen.kernel == row.kernel && seen.layer == result.profiled.layer) {
        EXPECT_GE(seen.bytes() / seen.launches, row.bytes() / row.launches);
      }
    }
  }
  options.profile_launch = "conv3d_forward";
  EXPECT_THROW(bench::measure_step(small("lenet5:4:f32", 16), options, test::device()), ArgumentError);
}

TEST_F(BenchStep, WithoutAVendorThereAreNoPlans) {
  EXPECT_THROW(bench::measure_plans(small("lenet5:4:f16", 16), 10, test::device()), ArgumentError);
}

TEST(StepWorkload, IsReadFromText) {
  const bench::StepWorkload workload = bench::step_workload("resnet50:256:bf16:muon");
  EXPECT_EQ(workload.model, "resnet50");
  EXPECT_EQ(workload.batch, 256);
  EXPECT_EQ(workload.precision, Precision::bf16);
  EXPECT_EQ(workload.optimizer, OptimizerKind::muon);
  EXPECT_EQ(bench::step_workload("resnet50:8").name(), "resnet50:8:f16:sgd");
  EXPECT_FALSE(workload.augments);
  EXPECT_TRUE(bench::step_workload("resnet50:8:f16:sgd:augment").augments);
  EXPECT_EQ(bench::step_workload("resnet50:8:::augment").name(), "resnet50:8:f16:sgd:augment");
  for (const char* wrong : {"resnet50", "resnet50:0", "resnet50:8:f8", "resnet50:8:f16:lion", "resnet5:8",
                            "resnet50:8:f16:sgd:more", "resnet50:8:f16:sgd:augment:more", ""})
    EXPECT_THROW(bench::step_workload(wrong), ArgumentError) << wrong;
  for (const bench::StepWorkload& one : bench::default_step_workloads()) EXPECT_GT(one.batch, 0);
}

/// Counts what the emulated kernels of one step touch.
class CountOneStep final : public Callback {
 public:
  CountOneStep(std::int64_t step, std::map<std::string, simt::KernelCounts>& to) : step_(step), to_(to) {}
  void on_step_begin(Trainer&, const StepInfo& info) override {
    if (info.attempted != step_) return;
    const AllowSync between_steps;
    synchronize(test::device());
    simt::start_counting();
  }
  void on_step_end(Trainer&, const StepInfo& info) override {
    if (info.attempted != step_ + 1) return;
    const AllowSync between_steps;
    synchronize(test::device());
    for (const simt::KernelCounts& kernel : simt::stop_counting().kernels) to_[kernel.name] = kernel;
  }

 private:
  std::int64_t step_;
  std::map<std::string, simt::KernelCounts>& to_;
};

TEST_F(BenchStep, BytesAreThoseThatTheEmulatorCounts) {
  if (!simt::can_count()) GTEST_SKIP() << "only the race build sees every access";
  const bench::StepWorkload workload = small("lenet5:4:f16", 16);
  std::map<std::string, simt::KernelCounts> counted;
  bench::StepTraining training(workload, 4, test::device());
  training.config.graph = GraphMode::off;
  Trainer trainer(training.config);
  trainer.add(std::make_unique<CountOneStep>(3, counted));
  trainer.fit(*training.task, *training.images);
  const StepResult result = bench::measure_step(workload, {.phases = kFew, .graph = false}, test::device());
  for (const StepRow& kernel : result.kernels()) {
    if (kernel.kind != cuda::Queued::kernel) continue;
    const auto found = counted.find(kernel.name);
    ASSERT_NE(found, counted.end()) << kernel.name;
    EXPECT_EQ(kernel.launches, static_cast<std::int64_t>(found->second.launches)) << kernel.name;
    EXPECT_EQ(kernel.bytes, static_cast<std::int64_t>(found->second.bytes_read + found->second.bytes_written))
        << kernel.name;
  }
}

}  // namespace athanor::bench_step_test
