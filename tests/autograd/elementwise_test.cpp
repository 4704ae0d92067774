#include "autograd/scalar_ops.h"
#include "kernels/elementwise_ops.h"
#include "tests/support/ops.h"

namespace athanor::elementwise_test {

// Binary ops, each of ATH_BINARY_OPS ----------------------------------------------------------------------

struct Binary {
  const char* name;
  Tensor (*op)(const Tensor&, const Tensor&);
};

const Binary kBinary[] = {
#define ATH_CASE(Op, name) {#name, name},
    ATH_BINARY_OPS(ATH_CASE)
#undef ATH_CASE
};

// Pairs that broadcast: equal, scalars, rows, columns, both ways at once, inner axes, empty.
const std::pair<Shape, Shape> kPairs[] = {
    {{6}, {6}},       {{}, {}},         {{}, {4, 3}},        {{4, 3}, {3}},
    {{4, 3}, {4, 1}}, {{4, 1}, {1, 3}}, {{2, 1, 3}, {5, 1}}, {{2, 3, 4, 5}, {1, 3, 1, 5}},
    {{0}, {1}},       {{3, 0}, {1, 1}}, {{40, 50}, {50}},    {{1, 1, 1}, {2}}};

class BinaryOp : public testing::TestWithParam<Binary> {};

TEST_P(BinaryOp, Gradcheck) {
  for (const auto& [first, second] : kPairs) {
    if (first.numel() * second.numel() > 3000) continue;
    // No value of a is one of b: there floor_divide and remainder jump.
    const Tensor a = test::unlike_values(first, DType::f64, true),
                 b = test::unlike_values(second, DType::f64, true, 1005);
    require_grad(a), require_grad(b);
    gradcheck([](std::span<const Tensor> in) { return GetParam().op(in[0], in[1]); }, std::array{a, b});
  }
}

TEST_P(BinaryOp, RejectsShapesAndDtypesThatDoNotFit) {
  const auto op = GetParam().op;
  EXPECT_THROW(op(Tensor::zeros({2}), Tensor::zeros({3})), ArgumentError);
  EXPECT_THROW(op(Tensor::zeros({2}), Tensor::zeros({2}, {DType::f64, kCpu})), ArgumentError);
  EXPECT_THROW(op(Tensor::zeros({2}, {DType::boolean, kCpu}), Tensor::zeros({2}, {DType::boolean, kCpu})),
               ArgumentError);
  EXPECT_THROW(op(Tensor::zeros({2}), Tensor()), ArgumentError);
}

INSTANTIATE_TEST_SUITE_P(All, BinaryOp, testing::ValuesIn(kBinary),
                         [](const auto& test) { return std::string(test.param.name); });

TEST(Binary, SavesOnlyWhatAGradientNeeds) {
  const Tensor weight = test::unlike_values({4}, DType::f32, true),
               constant = test::unlike_values({4}, DType::f32, true);
  require_grad(weight);
  const TapeCounters before = tape_counters();
  const Tensor y = mul(weight, constant);
  constant.bump_version();
  EXPECT_THROW(backward(y, test::unlike_values({4}, DType::f32, true)), ArgumentError);
  const Tensor z = mul(weight, constant);
  weight.bump_version();  // dL/dweight does not need weight
  EXPECT_NO_THROW(backward(z, test::unlike_values({4}, DType::f32, true)));
  EXPECT_EQ(tape_counters().nodes, before.nodes + 2);
}

// Values and gradients of op(a, b) against lists: NaN is equal to NaN.
void expect_pairs(Tensor (*op)(const Tensor&, const Tensor&), const std::vector<double>& left,
                  const std::vector<double>& right, const std::vector<double>& y,
                  const std::vector<double>& da, const std::vector<double>& db) {
  const Shape shape{static_cast<std::int64_t>(left.size())};
  const Tensor a = Tensor::from(left, shape), b = Tensor::from(right, shape);
  require_grad(a), require_grad(b);
  const Tensor result = op(a, b);
  backward(result, Tensor::from(std::vector<double>(left.size(), 1), shape));
  const std::vector<double> got[] = {result.to_vector(), grad_of(a).to_vector(), grad_of(b).to_vector()};
  const std::vector<double>* expected[] = {&y, &da, &db};
  for (int k = 0; k < 3; ++k) {
    for (std::size_t i = 0; i < left.size(); ++i) {
      const double value = got[k][i], wanted = (*expected[k])[i];
      EXPECT_TRUE(std::isnan(wanted) ? std::isnan(value)
                                     : value == wanted || std::abs(value - wanted) < 1e-14)
          << "result " << k << " of (" << left[i] << ", " << right[i] << ") is " << value;
    }
  }
}

// The lists are PyTorch 2.15's.
TEST(Binary, EqualOperandsShareTheGradientAndNaNPassesIt) {
  const double inf = INFINITY;
  const std::vector<double> a{1, 2, 3, NAN, 1, NAN, inf, -inf}, b{2, 2, 1, 1, NAN, NAN, inf, -inf};
  expect_pairs(maximum, a, b, {2, 2, 3, NAN, NAN, NAN, inf, -inf}, {0, 0.5, 1, 1, 1, 1, 0.5, 0.5},
               {1, 0.5, 0, 1, 1, 1, 0.5, 0.5});
  expect_pairs(minimum, a, b, {1, 2, 1, NAN, NAN, NAN, inf, -inf}, {1, 0.5, 0, 1, 1, 1, 0.5, 0.5},
               {0, 0.5, 1, 1, 1, 1, 0.5, 0.5});
}

TEST(Binary, TheDivisorsGradientIsZeroWhereTheQuotientIs) {
  const double tiny = std::numeric_limits<double>::denorm_min();
  expect_pairs(div, {0, 0, 6, 0}, {tiny, 2, 3, 0}, {0, 0, 2, NAN}, {INFINITY, 0.5, 1.0 / 3, INFINITY},
               {0, 0, -2.0 / 3, NAN});
}

TEST(Binary, FloorDivideAndRemainderHaveTheSignsOfPyTorch) {
  const double inf = INFINITY, nan = NAN;
  const std::vector<double> a{7, -7, 7, -7, 6, -6, 1, -1, 5, 0, inf, NAN, 0.3, 1, -1};
  const std::vector<double> b{2, 2, -2, -2, 3, 3, inf, inf, 0, 0, 2, 1, 0.1, -inf, 0};
  const std::vector<double> zeros(a.size(), 0), ones(a.size(), 1);
  expect_pairs(floor_divide, a, b, {3, -4, -4, 3, 2, -2, 0, -1, inf, nan, nan, nan, 2, -1, -inf}, zeros,
               zeros);
  expect_pairs(remainder, a, b, {1, 1, -1, -1, 0, 0, 1, inf, nan, nan, nan, nan, 0.1, -inf, nan}, ones,
               {-3, 4, 4, -3, -2, 2, 0, 1, -inf, nan, nan, nan, -2, 1, inf});
}

// Where a quotient or a power alone overflows, and its product with the other factors does not.
TEST(Binary, GradientsDoNotOverflowBeforeTheirLastFactor) {
  const auto expect = [](Tensor (*op)(const Tensor&, const Tensor&), double a, double b, double dy, double da,
                         double db) {
    const Tensor left = full({1}, a, {DType::f64}), right = full({1}, b, {DType::f64});
    require_grad(left);
    require_grad(right);
    backward(op(left, right), full({1}, dy, {DType::f64}));
    EXPECT_NEAR(grad_of(left).item() / da, 1, 1e-12) << a << " " << b;
    EXPECT_NEAR(grad_of(right).item() / db, 1, 1e-12) << a << " " << b;
  };
  expect(div, 1.5e308, 0.5, 0.125, 0.25, -7.5e307);
  expect(div, -1e-300, 1e-10, 1e-5, 1e5, 1e-285);
  const double tiny = std::numeric_limits<double>::denorm_min();
  expect(pow, tiny, 0x1p-64, 1, 0x1p1010, std::log(tiny));
  const double power = std::pow(1.5, 1750);
  expect(pow, 1.5, 1751, 0x1p-12, power * (1751 * 0x1p-12), power * (1.5 * std::log(1.5) * 0x1p-12));
}

// The quotient of floats is rounded, to the next integer now and then; its floor must not be.
TEST(Binary, FloorDivideDoesNotRoundUp) {
  const Tensor a = Tensor::from(std::vector<float>{0.3f, 1, -1}, {3});
  EXPECT_EQ(floor_divide(a, 0.1).to_vector(), (std::vector<double>{3, 9, -10}));
  EXPECT_EQ(remainder(Tensor::from(std::vector<float>{6, -6, 5}, {3}), -4).to_vector(),
            (std::vector<double>{-2, -2, -3}));
}

TEST(Binary, PowHasTheEdgesOfPyTorch) {
  const double inf = INFINITY;
  expect_pairs(pow, {0, -0.0, 0, 0, -2, -2, -2, 2, 1, NAN, inf, -inf, 0, -1},
               {0, 0, 2, -1, 2, 3, 0.5, 3, NAN, 0, 2, 3, 1, inf},
               {1, 1, 0, inf, 4, -8, NAN, 8, 1, 1, inf, -inf, 0, 1},
               {0, 0, 0, -inf, -4, 12, NAN, 12, NAN, 0, inf, inf, 1, inf},
               {0, 0, 0, -inf, NAN, NAN, NAN, 5.545177444479562, 0, NAN, inf, NAN, 0, NAN});
}

TEST(Affine, ScalesAndShiftsInOnePass) {
  const Tensor x = Tensor::from(std::vector<float>{1, 2, -3}, {3});
  require_grad(x);
  const Tensor y = affine(x, 2, 0.5);
  EXPECT_EQ(y.to_vector(), (std::vector<double>{2.5, 4.5, -5.5}));
  backward(y, Tensor::from(std::vector<float>{1, 10, 100}, {3}));
  EXPECT_EQ(grad_of(x).to_vector(), (std::vector<double>{2, 20, 200}));
  EXPECT_EQ((-x).to_vector(), (std::vector<double>{-1, -2, 3}));
}

}  // namespace athanor::elementwise_test
