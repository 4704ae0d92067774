#include "kernels/context.h"
#include "nn/loss.h"
#include "tests/support/ops.h"

namespace athanor::pair_loss_test {

using test::same_bits;

constexpr double kInf = INFINITY, kNan = NAN;

struct LossCase {
  std::string name;
  std::function<Tensor(const Tensor& a, const Tensor& b, Reduction reduction)> run;
  double low = -2, high = 2;  // of b
};

KlReduction kl(Reduction reduction) {
  return reduction == Reduction::mean  ? KlReduction::mean
         : reduction == Reduction::sum ? KlReduction::sum
                                       : KlReduction::none;
}

std::vector<LossCase> cases() {
  return {
      {"mse_loss", [](auto& a, auto& b, Reduction r) { return mse_loss(a, b, r); }},
      {"l1_loss", [](auto& a, auto& b, Reduction r) { return l1_loss(a, b, r); }},
      {"smooth_l1_loss", [](auto& a, auto& b, Reduction r) { return smooth_l1_loss(a, b, 0.75, r); }},
      {"huber_loss", [](auto& a, auto& b, Reduction r) { return huber_loss(a, b, 0.75, r); }},
      {"kl_div", [](auto& a, auto& b, Reduction r) { return kl_div(a, b, false, kl(r)); }, 0.1, 1},
      {"kl_div_log", [](auto& a, auto& b, Reduction r) { return kl_div(a, b, true, kl(r)); }},
      {"bce_with_logits",
       [](auto& a, auto& b, Reduction r) { return bce_with_logits(a, b, {.reduction = r}); }, 0, 1},
      {"bce_with_logits_pos_weight",
       [](auto& a, auto& b, Reduction r) {
         const DType dtype = a.defined() && a.dtype() == DType::f64 ? DType::f64 : DType::f32;
         const Tensor weight = cast(Tensor::from(std::vector<double>{2.5}, {}), dtype);
         return bce_with_logits(a, b, {.pos_weight = weight, .reduction = r});
       },
       0, 1},
      {"sigmoid_focal_loss",
       [](auto& a, auto& b, Reduction r) { return sigmoid_focal_loss(a, b, 1.5, 0.3, r); }, 0, 1},
  };
}

class PairLoss : public testing::TestWithParam<LossCase> {
 protected:
  static Tensor left(const test::ShapeCase& wanted, DType dtype) {
    return test::filled(wanted, dtype, {1}, -3, 3);
  }
  static Tensor right(const test::ShapeCase& wanted, DType dtype) {
    return test::filled(wanted, dtype, {2}, GetParam().low, GetParam().high);
  }
};

TEST_P(PairLoss, BitsDependOnNeitherThreadsNorStrides) {
  const Tensor a = left({{261, 303}, test::Layout::transposed}, DType::f32);
  const Tensor b = right({{261, 303}}, DType::f32);
  const Tensor first = GetParam().run(a, b, Reduction::sum);
  const test::Threads one(1);
  EXPECT_TRUE(same_bits(first, GetParam().run(contiguous(a), b, Reduction::sum)));
}

TEST_P(PairLoss, RejectsInvalidInputs) {
  const Tensor a = Tensor::zeros({2, 3});
  const auto refused = [&](const Tensor& left, const Tensor& right) {
    EXPECT_THROW(GetParam().run(left, right, Reduction::mean), ArgumentError);
  };
  refused(a, Tensor::zeros({3}));
  refused(a, Tensor::zeros({2, 3}, {DType::f64, kCpu}));
  refused(Tensor::zeros({2}, {DType::i64, kCpu}), Tensor::zeros({2}, {DType::i64, kCpu}));
  refused(a, Tensor());
  refused(Tensor(), a);
}

INSTANTIATE_TEST_SUITE_P(Losses, PairLoss, testing::ValuesIn(cases()),
                         [](const auto& test) { return test.param.name; });

// What an op gives element by element, and its gradients for dy = 1.
struct Results {
  std::vector<double> y, da, db;
};
template <class F> Results results(const F& run, const std::vector<double>& a, const std::vector<double>& b) {
  const auto n = static_cast<std::int64_t>(a.size());
  const Tensor left = Tensor::from(a, {n}), right = Tensor::from(b, {n});
  require_grad(left);
  require_grad(right);
  const Tensor y = run(left, right);
  backward(y, Tensor::from(std::vector<double>(a.size(), 1.0), {n}));
  return {y.to_vector(), grad_of(left).to_vector(), grad_of(right).to_vector()};
}

void expect_equal(const std::vector<double>& got, const std::vector<double>& expected) {
  ASSERT_EQ(got.size(), expected.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    if (std::isnan(expected[i])) {
      EXPECT_TRUE(std::isnan(got[i])) << i << ": " << got[i];
    } else if (std::isinf(expected[i])) {
      EXPECT_EQ(got[i], expected[i]) << i;
    } else {
      EXPECT_NEAR(got[i], expected[i], 1e-12 * std::abs(expected[i])) << i;
    }
  }
}

// Values of PyTorch 2.15 in f64.
TEST(BceWithLogits, InfinityAndNaNAreThoseOfPyTorch) {
  const auto run = [](const Tensor& x, const Tensor& t) {
    return bce_with_logits(x, t, {.reduction = Reduction::none});
  };
  const Results r = results(run, {kInf, kInf, -kInf, -kInf, kNan, 20, -200, 200}, {1, 0, 0, 1, 0, 1, 1, 1});
  expect_equal(r.y, {kNan, kInf, kNan, kNan, kNan, 2.061153620314381e-09, 200, 1.3838965267367376e-87});
  // That of 20 and a target of 1 is what is left of 1 in f64.
  expect_equal({r.da.begin(), r.da.begin() + 5}, {0, 1, 0, -1, kNan});
  EXPECT_NEAR(r.da[5], -2.0612e-9, 1e-13);
  expect_equal(r.db, {-kInf, -kInf, kInf, kInf, kNan, -20, 200, -200});
}

TEST(BceWithLogits, ConfidentLogitsKeepTheirDigitsInF32) {
  const Tensor x = Tensor::from(std::vector<float>{20, 50, -80}, {3});
  const Tensor t = Tensor::from(std::vector<float>{1, 1, 0}, {3});
  const std::vector<double> y = bce_with_logits(x, t, {.reduction = Reduction::none}).to_vector();
  for (const auto& [loss, logit] : {std::pair{y[0], 20.0}, {y[1], 50.0}, {y[2], 80.0}})
    EXPECT_NEAR(loss, std::exp(-logit), 4e-7 * std::exp(-logit));
}

TEST(BceWithLogits, OneTargetForAll) {
  for (const DType dtype : test::kFloating) {
    const Tensor x = test::filled({{5, 3}}, dtype, {1}, -3, 3);
    for (const double target : {0.0, 1.0, 0.75}) {
      const Tensor all = cast(Tensor::from(std::vector<double>(15, target), {5, 3}), dtype);
      EXPECT_TRUE(same_bits(bce_with_logits(x, target), bce_with_logits(x, all)));
    }
  }
}

TEST(BceWithLogits, RejectsInvalidWeights) {
  const Tensor x = Tensor::zeros({4, 3}), wide = Tensor::zeros({5, 4, 3});
  const Tensor trained = Tensor::zeros({3});
  require_grad(trained);
  EXPECT_REFUSED(bce_with_logits(x, x, {.weight = wide}), "weight", "f32", "[4, 3]", "[5, 4, 3]");
  EXPECT_REFUSED(bce_with_logits(x, x, {.pos_weight = Tensor::zeros({3}, {DType::f64, kCpu})}), "pos_weight",
                 "f32", "f64");
  EXPECT_REFUSED(bce_with_logits(x, x, {.pos_weight = trained}), "pos_weight", "gradient");
  EXPECT_REFUSED(bce_with_logits(Tensor::zeros({2}, {DType::i32, kCpu}), 1), "i32");
}

// By the formula in double, where nothing overflows.
TEST(SigmoidFocalLoss, EqualsItsFormula) {
  const std::vector<double> x{-3, -0.5, 0, 0.7, 2, 4}, t{0, 1, 0.5, 0, 1, 0.9};
  const auto expected = [](double logit, double target, double gamma, double alpha) {
    const double p = 1 / (1 + std::exp(-logit));
    const double bce = -target * std::log(p) - (1 - target) * std::log(1 - p);
    const double balance = alpha < 0 ? 1 : alpha * target + (1 - alpha) * (1 - target);
    return balance * std::pow(1 - (p * target + (1 - p) * (1 - target)), gamma) * bce;
  };
  for (const auto& [gamma, alpha] : {std::pair{2.0, 0.25}, {0.0, 0.25}, {0.5, -1.0}, {1.0, 1.0}}) {
    const auto run = [&, gamma = gamma, alpha = alpha](const Tensor& a, const Tensor& b) {
      return sigmoid_focal_loss(a, b, gamma, alpha, Reduction::none);
    };
    const Results r = results(run, x, t);
    constexpr double kStep = 1e-5;
    for (std::size_t i = 0; i < x.size(); ++i) {
      const auto at = [&, gamma = gamma, alpha = alpha](double dx, double dt) {
        return expected(x[i] + dx, t[i] + dt, gamma, alpha);
      };
      EXPECT_NEAR(r.y[i], at(0, 0), 1e-14);
      EXPECT_NEAR(r.da[i], (at(kStep, 0) - at(-kStep, 0)) / (2 * kStep), 1e-9);
      EXPECT_NEAR(r.db[i], (at(0, kStep) - at(0, -kStep)) / (2 * kStep), 1e-8);
    }
  }
}

TEST(SigmoidFocalLoss, WithoutFocusIsBce) {
  const Tensor x = test::filled({{5, 7}}, DType::f32, {1}, -3, 3),
               t = test::filled({{5, 7}}, DType::f32, {2}, 0, 1);
  EXPECT_TRUE(same_bits(sigmoid_focal_loss(x, t, 0, -1), bce_with_logits(x, t)));
}

TEST(SigmoidFocalLoss, ConfidentLogitsHaveFiniteGradients) {
  const auto run = [](const Tensor& a, const Tensor& b) {
    return sigmoid_focal_loss(a, b, 2, 0.25, Reduction::none);
  };
  const Results r = results(run, {900, -900, 900, -900}, {1, 0, 0, 1});
  expect_equal(r.y, {0, 0, 675, 225});
  expect_equal(r.da, {0, 0, 0.75, -0.25});
}

TEST(SigmoidFocalLoss, RejectsInvalidOptions) {
  const Tensor x = Tensor::zeros({4});
  EXPECT_REFUSED(sigmoid_focal_loss(x, x, -1), "gamma", "-1");
  EXPECT_REFUSED(sigmoid_focal_loss(x, x, 2, 1.5), "alpha", "1.5");
}

TEST(SmoothL1Loss, InfinityAndNaNAreThoseOfPyTorch) {
  const std::vector<double> a{kInf, kInf, kNan, 1}, b{0, kInf, 0, 0};
  const Results smooth = results(
      [](const Tensor& x, const Tensor& t) { return smooth_l1_loss(x, t, 1, Reduction::none); }, a, b);
  expect_equal(smooth.y, {kInf, kNan, kNan, 0.5});
  expect_equal(smooth.da, {1, kNan, kNan, 1});
  expect_equal(smooth.db, {-1, kNan, kNan, -1});
  const Results huber =
      results([](const Tensor& x, const Tensor& t) { return huber_loss(x, t, 0.5, Reduction::none); }, a, b);
  expect_equal(huber.y, {kInf, kNan, kNan, 0.375});
  expect_equal(huber.da, {0.5, kNan, kNan, 0.5});
  const Results l1 =
      results([](const Tensor& x, const Tensor& t) { return l1_loss(x, t, Reduction::none); }, a, b);
  expect_equal(l1.y, {kInf, kNan, kNan, 1});
  expect_equal(l1.da, {1, 0, 0, 1});
}

TEST(SmoothL1Loss, WithoutARoundPartIsL1) {
  const Tensor a = test::filled({{33}}, DType::f32, {1}), b = test::filled({{33}}, DType::f32, {2});
  EXPECT_TRUE(same_bits(smooth_l1_loss(a, b, 0), l1_loss(a, b)));
  EXPECT_REFUSED(smooth_l1_loss(a, b, -1), "beta", "-1");
  EXPECT_REFUSED(huber_loss(a, b, 0), "delta", "0");
  EXPECT_REFUSED(huber_loss(a, b, kInf), "delta", "inf");
  EXPECT_REFUSED(l1_loss(a, Tensor::zeros({3})), "f32 [33]", "f32 [3]");
}

TEST(KlDiv, ZeroTargetsCostNothing) {
  const auto run = [](const Tensor& x, const Tensor& t) { return kl_div(x, t, false, KlReduction::none); };
  const Results r = results(run, {-1, -kInf, -kInf, -1, kNan, 0}, {0, 0, 0.5, -1, 0, kNan});
  expect_equal(r.y, {0, kNan, kInf, kNan, kNan, kNan});
  expect_equal(r.da, {0, 0, -0.5, 1, 0, kNan});
}

TEST(KlDiv, BatchmeanDividesByTheFirstAxis) {
  const Tensor x = test::filled({{4, 3, 2}}, DType::f64, {1}, -3, 0);
  const Tensor t = test::filled({{4, 3, 2}}, DType::f64, {2}, 0.1, 1);
  for (const bool log_target : {false, true}) {
    const double sum = kl_div(x, t, log_target, KlReduction::sum).item();
    EXPECT_NEAR(kl_div(x, t, log_target, KlReduction::batchmean).item(), sum / 4, 1e-14);
  }
  const Tensor scalar = Tensor::from(std::vector<double>{0.5}, {});
  EXPECT_EQ(kl_div(scalar, scalar, false, KlReduction::batchmean).item(), 0.5 * (std::log(0.5) - 0.5));
}

TEST(PairLosses, ModulesPassTheirOptionsOn) {
  const Tensor a = test::filled({{4, 5}}, DType::f32, {1}),
               b = test::filled({{4, 5}}, DType::f32, {2}, 0.1, 1);
  const Tensor weight = test::filled({{5}}, DType::f32, {3}, 0.5, 2);
  const Reduction sum = Reduction::sum;
  EXPECT_TRUE(same_bits(nn::L1Loss{sum}(a, b), l1_loss(a, b, sum)));
  EXPECT_TRUE(same_bits(nn::SmoothL1Loss{0.5, sum}(a, b), smooth_l1_loss(a, b, 0.5, sum)));
  EXPECT_TRUE(same_bits(nn::HuberLoss{0.5, sum}(a, b), huber_loss(a, b, 0.5, sum)));
  EXPECT_TRUE(same_bits(nn::KlDivLoss{true, KlReduction::batchmean}(a, b),
                        kl_div(a, b, true, KlReduction::batchmean)));
  const BceOptions options{.weight = weight, .pos_weight = weight, .reduction = sum};
  EXPECT_TRUE(same_bits(nn::BceWithLogitsLoss{options}(a, b), bce_with_logits(a, b, options)));
  EXPECT_TRUE(same_bits(nn::BceWithLogitsLoss{options}(a, 1), bce_with_logits(a, 1, options)));
  const nn::CrossEntropyLoss entropy{0.1, sum, {}, weight};
  EXPECT_TRUE(same_bits(entropy(a, b),
                        cross_entropy(a, b, {.label_smoothing = 0.1, .reduction = sum, .weight = weight})));
}

TEST(PairLosses, OneTensorAsBothInputsHasNoGradient) {
  const Tensor a = test::filled({{9}}, DType::f32, {1});
  require_grad(a);
  backward(l1_loss(a, a) + smooth_l1_loss(a, a) + huber_loss(a, a) + mse_loss(a, a));
  EXPECT_EQ(grad_of(a).to_vector(), std::vector<double>(9, 0.0));
}

}  // namespace athanor::pair_loss_test
