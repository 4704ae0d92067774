#include <optional>

#include "kernels/cpu/context.h"
#include "tests/support/op_cases.h"

// What holds for every op of tests/support/op_cases.h: one list of cases drives gradients, layouts, threads.

namespace athanor::ops_test {

using test::In;
using test::OpCase;

class EveryOp : public testing::TestWithParam<OpCase> {
 protected:
  /// Leaves in a layout; but ops take no biases and parameters with gaps.
  static std::vector<Tensor> inputs(test::Layout layout = test::Layout::dense) {
    std::vector<Tensor> all;
    for (const Shape& shape : GetParam().shapes) {
      const bool is_parameter =
          shape.rank() < 2 || (GetParam().name.starts_with("layer_norm") && !all.empty());
      const test::Layout own = is_parameter ? test::Layout::dense : layout;
      all.push_back(require_grad(
          test::filled({shape, own}, DType::f64, {all.size() + 1, 7}, GetParam().low, GetParam().high)));
    }
    return all;
  }
};

TEST_P(EveryOp, CentralDifferencesAgree) {
  std::optional<AnomalyMode> finds_nothing;
  if (GetParam().shapes[0].numel() > 0) finds_nothing.emplace();  // the mean of nothing is NaN
  gradcheck(GetParam().run, inputs());
}

// Elements of inputs lie anywhere, and those of a gradient may be one.
TEST_P(EveryOp, StridedInputsAndGradientsAreRead) {
  const Tensor half = full({}, 0.5, {DType::f64});
  // A product is summed in an order that its factors' strides decide, and so is a variance.
  const std::string_view name = GetParam().name;
  const bool has_order =
      name.starts_with("linear") || name.starts_with("attention") || name.starts_with("var");
  const auto results = [&](test::Layout layout) {
    cpu_context().set_random_ops(0);
    return test::results_of(GetParam().run, inputs(layout), [&](const Tensor& y) {
      return layout == test::Layout::dense ? full(y.shape(), 0.5, y.options()) : expand(half, y.shape());
    });
  };
  const std::vector<Tensor> expected = results(test::Layout::dense);
  for (const test::Layout layout :
       {test::Layout::transposed, test::Layout::gapped, test::Layout::misaligned}) {
    const std::vector<Tensor> found = results(layout);
    for (std::size_t i = 0; i < found.size(); ++i)
      EXPECT_TRUE(test::close(found[i], expected[i], has_order ? 1e-14 : 0))
          << int(layout) << " result " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Ops, EveryOp, testing::ValuesIn(test::op_cases()),
                         [](const auto& test) { return test.param.name; });

// A cancellation, as in a logarithm near 1, loses some digits, and a half type has few.
TEST(OpCases, EqualTheSameByOtherOps) {
  for (const OpCase& c : test::op_cases()) {
    if (!c.same_as || c.shapes[0].numel() == 0) continue;
    for (const DType dtype : test::kFloating) {
      std::vector<Tensor> inputs;
      for (const Shape& shape : c.shapes)
        inputs.push_back(test::filled({shape}, dtype, {inputs.size() + 1}, c.low, c.high));
      const Tensor y = c.run(inputs), other = c.same_as(inputs);
      EXPECT_EQ(y.shape(), other.shape()) << c.name;
      EXPECT_TRUE(test::close(y, other, 16 * test::epsilon_of(dtype))) << c.name << ' ' << name_of(dtype);
    }
  }
}

// Of sizes that several threads share.
const OpCase kLarge[] = {
    {"div_gelu", {{100'003}, {100'003}}, [](In in) { return div(gelu(in[0]), in[1]); }, 0.5},
    {"sum", {{9001, 17}}, [](In in) { return sum(in[0], std::array{0}); }},
    {"sum_of_all", {{3000, 20}}, [](In in) { return sum(in[0]); }},
    {"sum_of_rows", {{3, 20'000}}, [](In in) { return sum(in[0], std::array{1}); }},
    {"sum_of_middle", {{2, 6000, 5}}, [](In in) { return sum(in[0], std::array{1}); }},
    {"var", {{5000, 300}}, [](In in) { return var(in[0], std::array{0}); }},
    {"var_of_rows", {{3, 20'000}}, [](In in) { return var(in[0], std::array{1}); }},
    {"var_of_all", {{40'000}}, [](In in) { return var(in[0]); }},
    {"softmax", {{300, 500}}, [](In in) { return softmax(in[0], 1); }},
    {"log_softmax", {{300, 500}}, [](In in) { return log_softmax(in[0], 0); }},
    {"topk", {{500, 301}}, [](In in) { return topk(in[0], 7).values; }},
    {"max_pool2d", {{33, 29, 31, 6}}, [](In in) { return max_pool2d(in[0]); }},
    {"max_pool2d_padded",
     {{33, 29, 31, 6}},
     [](In in) {
       return max_pool2d(in[0], {.window = {3, 3}, .padding = {1, 1}});
     }},
    {"interpolate_nearest",
     {{3, 33, 29, 6}},
     [](In in) {
       return interpolate(in[0], {.size = {70, 71}});
     }},
    {"interpolate_bilinear",
     {{3, 33, 29, 6}},
     [](In in) {
       return interpolate(in[0], {.mode = Interpolation::bilinear, .size = {70, 71}});
     }},
    {"batch_norm",
     {{32, 16, 16, 24}, {24}, {24}, {32, 16, 16, 24}},
     [](In in) {
       return batch_norm(in[0], cast(in[1], DType::f32), cast(in[2], DType::f32), {}, {}, true,
                         {.activation = Activation::relu}, in[3]);
     }},
    {"cross_entropy",
     {{256, 100}},
     [](In in) {
       std::vector<std::int64_t> target;
       for (std::int64_t i = 0; i < 256; ++i) target.push_back((3 * i + 1) % 100);
       return cross_entropy(in[0], Tensor::from(target, {256}), 0.1f);
     }},
    {"cross_entropy_distribution",
     {{256, 100}, {256, 100}},
     [](In in) { return cross_entropy(in[0], in[1], {.label_smoothing = 0.1}); }},
    {"group_norm", {{3, 40, 30, 12}}, [](In in) { return group_norm(in[0], 4); }},
    {"nt_xent_loss", {{120, 64}, {120, 64}}, [](In in) { return nt_xent_loss(in[0], in[1]); }},
};

class LargeOp : public testing::TestWithParam<OpCase> {};

TEST_P(LargeOp, BitsDoNotDependOnTheThreadCount) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    std::vector<Tensor> inputs;
    for (const Shape& shape : GetParam().shapes)
      inputs.push_back(test::filled({shape}, dtype, {inputs.size() + 1}, GetParam().low, 2));
    SCOPED_TRACE(name_of(dtype));
    test::expect_same_by_threads([&] {
      return test::results_of(GetParam().run, inputs,
                              [](const Tensor& y) { return test::filled({y.shape()}, y.dtype(), {9}); });
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Ops, LargeOp, testing::ValuesIn(kLarge),
                         [](const auto& test) { return test.param.name; });

}  // namespace athanor::ops_test
