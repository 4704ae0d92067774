#include "kernels/metrics.h"

#include "kernels/cpu/context.h"
#include "kernels/cuda/context.h"
#include "tests/cuda/ops.h"

namespace athanor::metrics_test {

using MetricsOnDevice = test::DeviceTest;

TEST_F(MetricsOnDevice, TotalsGrowAsOnTheCpu) {
  for (const DType dtype : test::kFloating) {
    const DType wide = dtype == DType::f64 ? DType::f64 : DType::f32;
    const Tensor here = test::filled({{3}}, DType::f64, {9}), there = here.to(test::device());
    for (const auto& [rows, classes] : {std::pair<std::int64_t, std::int64_t>{0, 3},
                                        {1, 1},
                                        {300, 2},
                                        {700, 10},
                                        {9, 100},
                                        {3, 1000},
                                        {3000, 2}}) {  // on a GPU, more blocks than the last one has threads
      // Few different values: many rows have equal largest ones.
      Tensor logits = test::filled({{rows, classes}}, DType::i32, {1}, -4, 4);
      const auto values = logits.to_vector();
      logits = Tensor::empty({rows, classes}, {dtype, kCpu});
      dispatch_floating(dtype, "test", [&]<class T>() {
        for (std::size_t i = 0; i < values.size(); ++i)
          logits.data<T>()[i] = T(static_cast<Accumulate<T>>(values[i]));
        if (logits.numel() > 50) logits.data<T>()[17] = T(static_cast<Accumulate<T>>(NAN));
      });
      const Tensor target = test::filled({{rows}}, DType::i64, {2}, 0, static_cast<double>(classes));
      const Tensor losses = test::filled({{rows}}, wide, {3}, 0, 2.0 / 3);
      const std::vector<double> each = losses.to_vector();
      EXPECT_TRUE(rows < 100 ||
                  std::any_of(each.begin(), each.end(),
                              [](double loss) { return kernels::quantized_loss(loss) != loss; }))
          << "multiples of 2^-24 would count as they are";
      kernels::add_metrics(cpu_context(), losses, logits, target, here);
      kernels::add_metrics(cuda_context(test::device()), losses.to(test::device()), logits.to(test::device()),
                           target.to(test::device()), there);
      EXPECT_TRUE(test::same_bits(there.to(kCpu), here)) << fmt::format("{} {} x {}", dtype, rows, classes);
    }
  }
}

// What steps log: means, sums, extremes, in one total after another; a NaN stays.
TEST_F(MetricsOnDevice, LoggedValuesGrowAsOnTheCpu) {
  for (const DType dtype : test::kFloating) {
    for (const MetricReduce reduce :
         {MetricReduce::mean, MetricReduce::sum, MetricReduce::min, MetricReduce::max, MetricReduce::exact}) {
      const Tensor here = Tensor::zeros({2}, {DType::f64, kCpu}), there = here.to(test::device());
      const auto add = [&](const Tensor& values, double weight) {
        kernels::add_metric(cpu_context(), values, weight, reduce, here);
        kernels::add_metric(cuda_context(test::device()), values.to(test::device()), weight, reduce, there);
        const auto expected = here.to_vector(), got = there.to_vector();
        EXPECT_EQ(got[1], expected[1]);
        EXPECT_TRUE(got[0] == expected[0] || (std::isnan(got[0]) && std::isnan(expected[0])))
            << fmt::format("{} {}: {} and {}", dtype, static_cast<int>(reduce), got[0], expected[0]);
      };
      for (const std::int64_t count : {1, 31, 257, 3000})  // whole numbers: any order of sums is exact
        add(cast(test::filled({{count}}, DType::i32, {static_cast<std::uint64_t>(count)}, -9, 9), dtype), 4);
      add(Tensor::from(std::vector<double>{1, NAN, 2}, {3}).to(kCpu), 4);
      add(cast(full({5}, 2), dtype), 4);
    }
  }
}

// Beside a row whose logits would make it right, were they looked at.
TEST_F(MetricsOnDevice, AnInvalidLabelCountsAsWrong) {
  const Tensor logits =
      Tensor::from(std::vector<float>{0, 0, 9, 1, 2, 3, 1, 2, 3, 9, 0, 0}, {4, 3}, test::device());
  const Tensor target = Tensor::from(std::vector<std::int64_t>{2, -1, 3, 0}, {4}, test::device());
  const Tensor losses = Tensor::from(std::vector<float>{0.5f, 0.25f, 1, 0.25f}, {4}, test::device());
  const Tensor totals = Tensor::zeros({3}, {DType::f64, test::device()});
  kernels::add_metrics(cuda_context(test::device()), losses, logits, target, totals);
  EXPECT_EQ(totals.to_vector(), (std::vector<double>{2, 2, 4})) << "its loss counts all the same";
}

// Counts: of the classes before the target's, and of pairs in a confusion matrix.
TEST_F(MetricsOnDevice, CountsAreThoseOfTheCpu) {
  for (const auto& [rows, classes] :
       {std::pair<std::int64_t, std::int64_t>{0, 3}, {1, 1}, {300, 2}, {700, 10}, {9, 100}}) {
    Tensor logits = cast(test::filled({{rows, classes}}, DType::i32, {1}, -4, 4), DType::f32);
    if (logits.numel() > 50) logits.data<float>()[17] = NAN;
    // Some of what is marked, and some answers, are no class.
    const Tensor target = test::filled({{rows}}, DType::i64, {2}, 0, static_cast<double>(classes)),
                 marked = test::filled({{rows}}, DType::i64, {3}, -1, static_cast<double>(classes + 2)),
                 says = test::filled({{rows}}, DType::i64, {4}, -1, static_cast<double>(classes + 2));
    for (const std::int64_t k : {1, 2, 5}) {
      const Tensor on_cpu = cast(test::filled({{2}}, DType::i64, {5}, 0, 9), DType::f64),
                   on_device = on_cpu.to(test::device());
      kernels::add_top_k(cpu_context(), logits, target, k, on_cpu);
      kernels::add_top_k(cuda_context(test::device()), logits.to(test::device()), target.to(test::device()),
                         k, on_device);
      EXPECT_TRUE(test::same_bits(on_device.to(kCpu), on_cpu))
          << fmt::format("top {} of {} x {}", k, rows, classes);
    }
    const Tensor here = Tensor::zeros({classes, classes}, {DType::f64, kCpu}),
                 there = here.to(test::device());
    kernels::add_confusion(cpu_context(), says, marked, here);
    kernels::add_confusion(cuda_context(test::device()), says.to(test::device()), marked.to(test::device()),
                           there);
    EXPECT_TRUE(test::same_bits(there.to(kCpu), here)) << fmt::format("pairs of {} x {}", rows, classes);
  }
}

}  // namespace athanor::metrics_test
