#include "kernels/update.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "kernels/muon.h"
#include "kernels/on_device.h"
#include "kernels/update_ops.h"
#include "tests/cuda/bound_step.h"
#include "tests/cuda/device.h"

namespace athanor::update_test {

using kernels::AdamGroup;
using kernels::kUpdateChunk;
using kernels::MuonStep;
using kernels::SgdGroup;
using kernels::update_parameters;
using kernels::UpdateRange;
using kernels::UpdateTable;
using test::BoundStep;
using test::bytes_of;
using test::close;
using test::filled;
using test::make_step;
using test::same_bits;

// The functors are the same code; Adam's bias correction takes pow from another library.
constexpr double kTolerance = 0x1p-22;

// What a launch may find: gradients and compute copies of every pair of dtypes (f32 copies: none).
struct Kind {
  DType gradients, weights;
};
constexpr Kind kKinds[] = {{DType::f32, DType::f32},
                           {DType::f32, DType::f16},
                           {DType::f32, DType::bf16},
                           {DType::f16, DType::f16},
                           {DType::bf16, DType::bf16}};

/// Parameters of several sizes in one part of an arena: one element, odd ones, several ranges, and one that
/// begins off alignment.
struct Part {
  UpdateTable table;
  Tensor first, second;  // state

  Part(Kind kind, Device device, bool averages = false) {
    constexpr std::int64_t kSizes[] = {1, 5, 4096, 2 * kUpdateChunk + 1003, 40};
    constexpr std::int64_t kBegins[] = {0, 32, 64, 4160, 4160 + 2 * kUpdateChunk + 1003};
    const std::int64_t size = kBegins[4] + kSizes[4];
    std::vector<UpdateRange> ranges;
    for (std::size_t i = 0; i < std::size(kSizes); ++i) {
      for (std::int64_t at = 0; at < kSizes[i]; at += kUpdateChunk) {
        UpdateRange range{};
        range.start = table.elements;
        range.count = std::min(kUpdateChunk, kSizes[i] - at);
        range.gradients = range.weights = range.masters = range.averages = kBegins[i] + at;
        range.state = kBegins[i] + at;
        range.member = static_cast<std::int32_t>(i);
        range.group = static_cast<std::int16_t>(i % 2);
        range.decay = i != 1;
        range.lr_scale = i == 2 ? 0.5f : 1;
        range.last = at + range.count == kSizes[i];
        ranges.push_back(range);
        table.elements += range.count;
      }
    }
    table.count = static_cast<std::int64_t>(ranges.size());
    table.ranges = bytes_of(ranges.data(), ranges.size() * sizeof(UpdateRange)).to(device);
    table.gradients = filled({{size}}, kind.gradients, {1}).to(device);
    table.masters = fresh(filled({{size}}, DType::f32, {2}), device);
    if (kind.weights != DType::f32)
      table.weights = fresh(Tensor::zeros({size}, {kind.weights, kCpu}), device);
    table.steps = fresh(Tensor::from(std::vector<std::int64_t>{0, 1, 7, 0, 2}, {5}), device);
    first = fresh(filled({{size}}, DType::f32, {3}), device);
    second = fresh(filled({{size}}, DType::f32, {4}, 0, 0.1), device);
    if (averages) table.averages = fresh(filled({{size}}, DType::f32, {5}), device);
    table.average = {0.9, true};
  }

  /// The table of the large parameter alone.
  UpdateTable matrix() const {
    UpdateTable alone = table;
    constexpr std::int64_t kBytes = sizeof(UpdateRange);
    alone.ranges = table.ranges.view_as_strided({3 * kBytes}, {1}, 3 * kBytes);
    alone.count = 3;
    alone.elements = 2 * kUpdateChunk + 1003;
    return alone;
  }
  std::vector<Tensor> written() const {
    std::vector<Tensor> all = {table.masters, table.steps, first, second};
    if (table.weights.defined()) all.push_back(table.weights);
    if (table.averages.defined()) all.push_back(table.averages);
    return all;
  }

 private:
  static Tensor fresh(const Tensor& x, Device device) { return x.to(device); }
};

void expect_equal(const Part& found, const Part& expected, double tolerance) {
  const std::vector<Tensor> a = found.written(), b = expected.written();
  for (std::size_t i = 0; i < a.size(); ++i) {
    SCOPED_TRACE(i);
    const bool half = b[i].dtype() == DType::f16 || b[i].dtype() == DType::bf16;
    EXPECT_TRUE(close(a[i].to(kCpu), b[i], half ? test::epsilon_of(b[i].dtype()) : tolerance));
  }
}
void expect_same_bits(const Part& found, const Part& expected) {
  const std::vector<Tensor> a = found.written(), b = expected.written();
  for (std::size_t i = 0; i < a.size(); ++i) EXPECT_TRUE(same_bits(a[i].to(kCpu), b[i]));
}

/// `update(context, part)` on both devices; twice, so that counters are read again.
template <class F> void compare(const F& update, bool skipped, Kind kind, bool averages) {
  {
    SCOPED_TRACE(fmt::format("{} {} {}", kind.gradients, kind.weights, averages));
    const Part here(kind, kCpu, averages), there(kind, test::device(), averages);
    for (const Device device : {kCpu, test::device()}) {
      const BoundStep step(device, make_step(skipped));
      for (int i = 0; i < 2; ++i)
        on_device(device, [&](auto& context) { update(context, device.is_cpu() ? here : there); });
    }
    if (skipped) {
      expect_same_bits(there, Part(kind, kCpu, averages));
    } else {
      expect_equal(there, here, kTolerance);
      EXPECT_TRUE(same_bits(there.table.steps.to(kCpu), here.table.steps));
    }
    if (!averages) return;
    // Moved in a pass of their own, they are the same.
    Part apart(kind, test::device(), true);
    const Tensor moved = std::exchange(apart.table.averages, Tensor());
    const BoundStep step(test::device(), make_step(skipped));
    for (int i = 0; i < 2; ++i) {
      update(cuda_context(test::device()), apart);
      UpdateTable own = apart.table;
      own.averages = moved;
      kernels::average_ranges(cuda_context(test::device()), own);
    }
    const Tensor fused = there.table.averages.to(kCpu), separate = moved.to(kCpu);
    const Tensor before = filled({{fused.numel()}}, DType::f32, {5});
    for (std::int64_t i = 0; i < fused.numel(); ++i) {  // Muon updates one of the parameters alone
      const float value = fused.data<float>()[i];
      if (value == before.data<float>()[i]) continue;
      ASSERT_EQ(value, separate.data<float>()[i]) << i;
    }
  }
}
template <class F> void compare(const F& update, bool skipped) {
  for (const Kind& kind : kKinds) {
    for (const bool averages : {false, true}) compare(update, skipped, kind, averages);
  }
}

class UpdateOnDevice : public test::DeviceTest, public testing::WithParamInterface<bool> {};
INSTANTIATE_TEST_SUITE_P(AppliedAndSkipped, UpdateOnDevice, testing::Bool(),
                         [](const auto& test) { return test.param ? "Skipped" : "Applied"; });

TEST_P(UpdateOnDevice, SgdEqualsCpu) {
  const SgdGroup groups[] = {{0, 0, 0.01f, false}, {0, 0, 0.1f, false}};
  compare([&](auto& context,
              const Part& part) { update_parameters<kernels::SgdRule>(context, part.table, groups, {}); },
          GetParam());
}

TEST_P(UpdateOnDevice, MomentumEqualsCpu) {
  const SgdGroup groups[] = {{0.9f, 0.1f, 0.01f, false}, {0.8f, 0, 0.1f, true}};
  compare(
      [&](auto& context, const Part& part) {
        update_parameters<kernels::MomentumRule>(context, part.table, groups, {&part.first, 1});
      },
      GetParam());
}

TEST_P(UpdateOnDevice, AdamEqualsCpu) {
  const AdamGroup groups[] = {{0.9, 0.999, 1e-8f, 0.01f, false}, {0.8, 0.99, 1e-6f, 0.1f, true}};
  compare(
      [&](auto& context, const Part& part) {
        const Tensor moments[] = {part.first, part.second};
        update_parameters<kernels::AdamRule>(context, part.table, groups, moments);
      },
      GetParam());
}

TEST_P(UpdateOnDevice, MuonEqualsCpu) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const float norm : {0.0f, 3.0f}) {
      SCOPED_TRACE(fmt::format("{} {}", dtype, norm));
      const auto update = [&](auto& context, const Part& part) {
        const UpdateTable matrix = part.matrix();
        const Tensor x = Tensor::zeros({1, 1, matrix.elements}, {dtype, part.table.masters.device()});
        kernels::muon_momentum(context, matrix, 0.9f, norm > 0, part.first, x);
        kernels::muon_apply(context, matrix, MuonStep{0.1f, 0.5f, norm}, x);
      };
      compare(update, GetParam());
    }
  }
}

TEST_P(UpdateOnDevice, FlatTensorsFollowTheStep) {
  for (const std::int64_t size : {0, 1, 7, 4096, 5003}) {
    for (const auto layout : {test::Layout::dense, test::Layout::misaligned}) {
      SCOPED_TRACE(size);
      std::vector<std::vector<Tensor>> results;
      for (const Device device : {kCpu, test::device()}) {
        const BoundStep step(device, make_step(GetParam()));
        const auto make = [&](std::uint64_t seed) {
          const Tensor x = filled({{size}, layout}, DType::f32, {seed});
          return device.is_cpu() ? x : test::on_device_like(x);
        };
        const Tensor a = make(1), b = make(2), c = make(3), d = make(4), e = make(5);
        on_device(device, [&](auto& context) {
          kernels::average_update(context, a, b, {0.9, true});
          kernels::average_update(context, a, c, {0.999, false});
          kernels::copy_if_skipped(context, a, d);
          kernels::exchange(context, a, e);
        });
        results.push_back({a, b, c, d, e});
      }
      for (std::size_t i = 0; i < 5; ++i) EXPECT_TRUE(same_bits(results[1][i].to(kCpu), results[0][i]));
    }
  }
}

using UpdateStepOnDevice = test::DeviceTest;

TEST_F(UpdateStepOnDevice, SgdByHand) {
  const Device device = test::device();
  UpdateRange range{};
  range.count = 3;
  range.decay = range.last = true;
  UpdateTable table;
  table.gradients = Tensor::from(std::vector<float>{1, 2, -4}, {3}, device);
  table.masters = Tensor::from(std::vector<float>{1, 1, 1}, {3}, device);
  table.steps = Tensor::zeros({1}, {DType::i64, device});
  table.ranges = bytes_of(&range, sizeof range).to(device);
  table.count = 1;
  table.elements = 3;
  StepState state;
  state.learning_rate[0] = 0.5f;
  state.loss_scale = 2;
  const BoundStep step(device, state);
  const SgdGroup groups[] = {{0.5f, 0, 1, false}};
  const Tensor momentum = Tensor::zeros({3}, {DType::f32, device});
  // g = (1.5, 2, -1), b = g, w = (0.25, 0, 1.5); then g = (0.75, 1, -0.5), b = (1.5, 2, -1).
  update_parameters<kernels::MomentumRule>(cuda_context(device), table, groups, {&momentum, 1});
  EXPECT_EQ(table.masters.to_vector(), (std::vector<double>{0.25, 0, 1.5}));
  update_parameters<kernels::MomentumRule>(cuda_context(device), table, groups, {&momentum, 1});
  EXPECT_EQ(table.masters.to_vector(), (std::vector<double>{-0.5, -1, 2}));
  EXPECT_EQ(momentum.to_vector(), (std::vector<double>{1.5, 2, -1}));
  EXPECT_EQ(table.steps.to_vector(), std::vector<double>{2});
}

TEST_F(UpdateStepOnDevice, NormOfAllTablesAndClipping) {
  const Part f32({DType::f32, DType::f32}, kCpu), f16({DType::f16, DType::f16}, kCpu);
  const Part f32_there({DType::f32, DType::f32}, test::device()),
      f16_there({DType::f16, DType::f16}, test::device());
  const UpdateTable here[] = {f32.table, f16.table}, there[] = {f32_there.table, f16_there.table};
  for (const float max_norm : {1.0f, 1e6f, INFINITY}) {
    const BoundStep step(kCpu, make_step()), step_there(test::device(), make_step(true));
    kernels::measure_gradients(cpu_context(), here, {.max_norm = max_norm, .max_value = 2});
    kernels::measure_gradients(cuda_context(test::device()), there, {.max_norm = max_norm, .max_value = 2});
    const StepState expected = step.read(), found = step_there.read();
    EXPECT_NEAR(found.grad_norm, expected.grad_norm, 1e-6 * expected.grad_norm);
    EXPECT_NEAR(found.clip_coefficient, expected.clip_coefficient, 1e-6);
    EXPECT_EQ(found.clip_value, 2);
    EXPECT_EQ(found.found_inf, 0);
    EXPECT_EQ(found.loss_scale, 4);
  }
}

TEST_F(UpdateStepOnDevice, AnyGradientThatIsNotFiniteIsFound) {
  for (const float bad : {INFINITY, -INFINITY, NAN}) {
    for (const std::int64_t at : {std::int64_t{0}, std::int64_t{36}, 4160 + 2 * kUpdateChunk + 1002}) {
      Part part({DType::f32, DType::f32}, kCpu);
      part.table.gradients.data<float>()[at] = bad;
      part.table.gradients = part.table.gradients.to(test::device());
      part.table.ranges = part.table.ranges.to(test::device());
      const BoundStep step(test::device(), make_step());
      kernels::measure_gradients(cuda_context(test::device()), std::span(&part.table, 1),
                                 {.max_norm = 1, .max_value = 1});
      EXPECT_EQ(step.read().found_inf, 1) << at;
      EXPECT_EQ(step.read().clip_coefficient, 1);
    }
  }
}

TEST_F(UpdateStepOnDevice, LargeGradientsDoNotOverflowTheNorm) {
  Part part({DType::f32, DType::f32}, kCpu);
  test::fill_uniform(part.table.gradients, {7}, 2e38, 3e38);
  part.table.gradients = part.table.gradients.to(test::device());
  part.table.ranges = part.table.ranges.to(test::device());
  const BoundStep step(test::device(), make_step());
  kernels::measure_gradients(cuda_context(test::device()), std::span(&part.table, 1),
                             {.max_norm = 1, .max_value = 1});
  EXPECT_EQ(step.read().found_inf, 0);
}

TEST_F(UpdateStepOnDevice, NoGradientsAtAll) {
  const BoundStep step(test::device(), make_step(true));
  kernels::measure_gradients(cuda_context(test::device()), {}, {.max_norm = 1, .max_value = 1});
  EXPECT_EQ(step.read().grad_norm, 0);
  EXPECT_EQ(step.read().found_inf, 0);
  UpdateTable none;
  update_parameters<kernels::SgdRule>(cuda_context(test::device()), none, {}, {});
}

TEST_F(UpdateStepOnDevice, CountsAppliedAndSkippedSteps) {
  for (const bool skipped : {false, true}) {
    const BoundStep step(test::device(), make_step(skipped));
    kernels::finish_step(cuda_context(test::device()), LossScaling::fixed(1), {});
    EXPECT_EQ(step.read().applied_steps, skipped ? 4 : 5);
    EXPECT_EQ(step.read().overflow_steps, skipped ? 1 : 0);
  }
}

TEST_F(UpdateStepOnDevice, LearningRatesAreThoseOfTheAppliedStep) {
  kernels::RateWindow window{};
  window.first_step = 3;
  window.steps = 2;
  window.first_group = 1;
  window.groups = 2;
  window.rate[0][0] = 9;
  window.rate[1][0] = 0.5f;
  window.rate[1][1] = 0.25f;
  const BoundStep step(test::device(), make_step());
  kernels::set_learning_rates(cuda_context(test::device()), window);
  const StepState found = step.read();
  EXPECT_EQ(found.learning_rate[0], 0.1f);
  EXPECT_EQ(found.learning_rate[1], 0.5f);
  EXPECT_EQ(found.learning_rate[2], 0.25f);
  EXPECT_EQ(found.learning_rate[3], 0);
}

}  // namespace athanor::update_test
