// A training whose first steps tune convolutions: what its times, rates and reports say.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <thread>

#include <nlohmann/json.hpp>

#include "kernels/cuda/context.h"
#include "kernels/cuda/vendor.h"
#include "tests/cuda/device.h"
#include "tests/support/errors.h"
#include "tests/support/small_training.h"
#include "trainer/loggers/progress.h"

namespace athanor::tuning_time_test {

class TuningTime : public test::DeviceTest {
 protected:
  static constexpr double kTuned_s = 1.5;
  static constexpr std::int64_t kSamples = 64, kEpochs = 2;

  TrainerConfig config() const {
    TrainerConfig config = test::small_config();
    config.device = test::device();
    config.epochs = kEpochs;
    return config;
  }
  /// Does in the second step what a convolution does that is met for the first time.
  static void tune_in_step_2(int call, const Tensor&) {
    if (call != 2) return;
    std::this_thread::sleep_for(std::chrono::duration<double>(kTuned_s));
    cuda::VendorLog& log = cuda_context(test::device()).vendor().log();
    log.stats.tuning_s += kTuned_s;
    log.stats.tuned += 3;
    log.stats.plans_made += 3;
    log.stats.by_handle += 2;
    log.stats.by_text += 1;
    log.add("conv2d of this test", {.refused = true}, "was refused");
  }
};

/// One of the lines names all of the values.
bool told(const std::vector<std::string>& lines, std::initializer_list<std::string_view> values) {
  return std::any_of(lines.begin(), lines.end(),
                     [&](const std::string& line) { return static_cast<bool>(test::names(line, values)); });
}

TEST_F(TuningTime, IsInNoOtherTimeAndIsReported) {
  const test::TempDir dir;
  TrainerConfig wanted = config();
  wanted.metrics = dir / "metrics.jsonl";
  const RunClock wall;
  const test::RecordedRun run = test::run(wanted, kSamples, tune_in_step_2);
  const double trained_s = wall.seconds() - kTuned_s;
  EXPECT_LE(run.report.wall_s, trained_s);
  EXPECT_GE(run.report.images_per_s, kSamples * kEpochs / trained_s);
  ASSERT_EQ(run.epochs.size(), 2u);
  EXPECT_NEAR(run.epochs[0].times.tuning, kTuned_s, 1e-9);
  EXPECT_EQ(run.epochs[1].times.tuning, 0);
  EXPECT_LE(run.epochs[0].times.step() + run.epochs[0].other_s, trained_s);
  for (const StepInfo& step : run.steps) EXPECT_LE(step.epoch_s, trained_s);

  EXPECT_TRUE(told(run.notes, {"conv2d of this test", "was refused"}));
  EXPECT_TRUE(told(run.epochs[0].notes, {"3", "1.5 s"}));
  EXPECT_FALSE(told(run.epochs[1].notes, {"3", "1.5 s"}));
  EXPECT_EQ(run.report.vendor.tuned, 3);
  EXPECT_EQ(run.report.vendor.refused, 1);

  std::vector<nlohmann::json> lines;
  std::istringstream file(test::read_file(wanted.metrics));
  for (std::string text; std::getline(file, text);) lines.push_back(nlohmann::json::parse(text));
  const auto of_event = [&](const char* event) {
    return *std::find_if(lines.begin(), lines.end(), [&](const auto& one) { return one["event"] == event; });
  };
  EXPECT_EQ(of_event("epoch")["times_s"]["tuning"], kTuned_s);
  EXPECT_TRUE(
      test::names(of_event("note")["text"].get<std::string>(), {"conv2d of this test", "was refused"}));
  const nlohmann::json vendor = of_event("end").at("vendor");
  EXPECT_EQ(vendor["refused"], 1);
  EXPECT_EQ(vendor["tuned"], 3);
  EXPECT_EQ(vendor["by_handle"], 2);
  EXPECT_EQ(vendor["by_text"], 1);
  EXPECT_NEAR(vendor["tuning_s"].get<double>(), kTuned_s, 1e-9);
  EXPECT_TRUE(test::names(vendor["summary"].get<std::string>(),
                          {"cuDNN", "cuBLASLt", "0 calls", "3 plans", "1.5 s", "1"}));
}

// A second run of the process has its own counts.
TEST_F(TuningTime, OfAnEarlierRunIsNotReportedAgain) {
  cuda_context(test::device()).vendor().log().stats.plans_made += 5;
  const test::RecordedRun run = test::run(config(), kSamples);
  EXPECT_EQ(run.report.vendor.plans_made, 0);
  EXPECT_EQ(run.report.vendor.tuning_s, 0);
  EXPECT_FALSE(run.report.vendor.any());
}

TEST_F(TuningTime, IsNotInTheTimeThatIsLeft) {
  if (test::kChecksEveryAccess) GTEST_SKIP() << "the other steps take long";
  char* text = nullptr;
  std::size_t size = 0;
  std::FILE* out = open_memstream(&text, &size);
  const TrainerConfig wanted = config();
  {
    test::Perceptron model;
    model.on_forward = tune_in_step_2;
    Trainer trainer(wanted);
    trainer.add(std::make_unique<Progress>(out, true, 120));
    trainer.fit(model, *synthetic(test::kSmallSpec, 16 * 10, 1), *synthetic(test::kSmallSpec, 20, 2));
  }
  std::fclose(out);
  const std::string all(text, size);
  std::free(text);  // NOLINT: open_memstream's contract
  // After the second of 20 steps, 18 would take as long again: 13 s with the time of tuning.
  std::size_t found = 0;
  for (std::size_t at = all.find(" s left"); at != all.npos; at = all.find(" s left", at + 1)) {
    const std::size_t begin = all.find_last_not_of("0123456789.", at - 1) + 1;
    EXPECT_LT(std::stod(all.substr(begin, at - begin)), 10) << all;
    ++found;
  }
  EXPECT_GT(found, 0u) << all;
  EXPECT_TRUE(test::has_line(all, {"cuDNN", "cuBLASLt", "0 calls", "3 plans"}));
}

}  // namespace athanor::tuning_time_test
