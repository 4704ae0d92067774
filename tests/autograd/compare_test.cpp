#include "autograd/compare.h"

#include <cstdint>

#include "kernels/cpu/context.h"
#include "tests/support/ops.h"

namespace athanor::compare_test {

struct Case {
  const char* name;
  Tensor (*op)(const Tensor&, const Tensor&);
  bool (*holds)(double, double);
};

const Case kCases[] = {
    {"eq", eq, [](double a, double b) { return a == b; }},
    {"ne", ne, [](double a, double b) { return a != b; }},
    {"lt", lt, [](double a, double b) { return a < b; }},
    {"le", le, [](double a, double b) { return a <= b; }},
    {"gt", gt, [](double a, double b) { return a > b; }},
    {"ge", ge, [](double a, double b) { return a >= b; }},
    {"logical_and", logical_and, [](double a, double b) { return a != 0 && b != 0; }},
    {"logical_or", logical_or, [](double a, double b) { return a != 0 || b != 0; }},
    {"logical_xor", logical_xor, [](double a, double b) { return (a != 0) != (b != 0); }},
};

class Comparison : public testing::TestWithParam<Case> {
 protected:
  void check(const Tensor& a, const Tensor& b) const {
    const Tensor y = GetParam().op(a, b);
    const Shape shape = broadcast_shapes(a.shape(), b.shape(), "test");
    ASSERT_EQ(y.shape(), shape);
    ASSERT_EQ(y.dtype(), DType::boolean);
    ASSERT_FALSE(y.requires_grad());
    const std::vector<double> left = expand(a, shape).to_vector(), right = expand(b, shape).to_vector();
    const std::vector<double> got = y.to_vector();
    for (std::size_t i = 0; i < got.size(); ++i)
      ASSERT_EQ(got[i] != 0, GetParam().holds(left[i], right[i]))
          << name_of(a.dtype()) << " " << left[i] << " and " << right[i];
  }
};

TEST_P(Comparison, HoldsForSpecialNumbers) {
  const std::vector<double> special{0, -0.0, 1, INFINITY, -INFINITY, NAN};
  const Tensor x = Tensor::from(special, {6});
  check(reshape(x, {6, 1}), x);
  const std::vector<std::int64_t> large{INT64_MAX, INT64_MAX - 1, INT64_MIN,
                                        INT64_MIN + 1};  // not in doubles
  const Tensor a = Tensor::from(large, {4});
  const std::vector<double> got = eq(reshape(a, {4, 1}), a).to_vector();
  for (std::size_t i = 0; i < 16; ++i) EXPECT_EQ(got[i] != 0, i / 4 == i % 4);
}

TEST_P(Comparison, RejectsMismatchedOperands) {
  const auto op = GetParam().op;
  EXPECT_THROW(op(Tensor::zeros({2}), Tensor::zeros({3})), ArgumentError);
  EXPECT_THROW(op(Tensor::zeros({2}), Tensor::zeros({2}, {DType::f64, kCpu})), ArgumentError);
  EXPECT_THROW(op(Tensor::zeros({2}), Tensor()), ArgumentError);
  EXPECT_THROW(op(Tensor(), Tensor::zeros({2})), ArgumentError);
}

INSTANTIATE_TEST_SUITE_P(All, Comparison, testing::ValuesIn(kCases),
                         [](const auto& test) { return std::string(test.param.name); });

TEST(Comparisons, TakeANumber) {
  using List = std::vector<double>;
  for (const DType dtype :
       {DType::f64, DType::f32, DType::f16, DType::bf16, DType::i64, DType::i32, DType::u8}) {
    const Tensor x = Tensor::empty({3}, {dtype, kCpu});
    kernels::arange(cpu_context(), 1, 1, x);
    EXPECT_EQ(eq(x, 2).to_vector(), (List{0, 1, 0}));
    EXPECT_EQ(ne(x, 2).to_vector(), (List{1, 0, 1}));
    EXPECT_EQ(lt(x, 2).to_vector(), (List{1, 0, 0}));
    EXPECT_EQ(le(x, 2).to_vector(), (List{1, 1, 0}));
    EXPECT_EQ(gt(x, 2).to_vector(), (List{0, 0, 1}));
    EXPECT_EQ(ge(x, 2).to_vector(), (List{0, 1, 1}));
  }
  // Rounded to the tensor's dtype, as in PyTorch: the f32 nearest to 0.1 is not 0.1.
  EXPECT_EQ(eq(Tensor::from(std::vector<float>{0.1f}, {1}), 0.1).item(), 1);
  EXPECT_EQ(eq(Tensor::from(std::vector<Half>{Half(0.1f)}, {1}), 0.1).item(), 1);
  EXPECT_EQ(lt(Tensor::from(std::vector<float>{1, NAN}, {2}), INFINITY).to_vector(), (List{1, 0}));
}

TEST(Comparisons, RejectInvalidNumbers) {
  const Tensor x = Tensor::zeros({2}, {DType::u8, kCpu});
  for (const double number : {2.5, -1.0, 256.0, static_cast<double>(NAN)}) {
    EXPECT_REFUSED(lt(x, number), "u8", fmt::format("{}", number));
  }
  EXPECT_THROW(eq(Tensor(), 1), ArgumentError);
}

TEST(Comparisons, AreNotRecordedForBackward) {
  const Tensor x = require_grad(Tensor::from(std::vector<float>{1, 2}, {2}));
  EXPECT_FALSE(gt(x, 1.5).requires_grad());
  EXPECT_FALSE(logical_not(x).requires_grad());
  EXPECT_FALSE(any(x).requires_grad());
  EXPECT_EQ(where(gt(x, 1.5), x, -x).to_vector(), (std::vector<double>{-1, 2}));
}

TEST(Logic, NotOfNaNAndOfMinusZero) {
  EXPECT_EQ(logical_not(Tensor::from(std::vector<float>{NAN, -0.0f}, {2})).to_vector(),
            (std::vector<double>{0, 1}));
}

TEST(AnyAll, OfNothingAndOfNaN) {
  EXPECT_EQ(any(Tensor::zeros({0})).item(), 0);
  EXPECT_EQ(all(Tensor::zeros({0})).item(), 1);
  const int last[] = {1};
  EXPECT_EQ(any(Tensor::zeros({2, 0}), last).to_vector(), (std::vector<double>{0, 0}));
  EXPECT_EQ(all(Tensor::zeros({2, 0}), last).to_vector(), (std::vector<double>{1, 1}));
  EXPECT_EQ(any(Tensor::from(std::vector<float>{NAN, 0}, {2})).item(), 1);
  EXPECT_EQ(all(Tensor::from(std::vector<float>{NAN, 1}, {2})).item(), 1);
  // More than f32 counts one by one.
  const Tensor one = Tensor::from(std::vector<float>{1}, {1});
  EXPECT_EQ(any(expand(one, {1 << 12, 1 << 13})).item(), 1);
}

TEST(AnyAll, NameThemselvesInErrors) {
  const int wrong[] = {2};
  for (const auto& named : {std::pair{"any", &any}, std::pair{"all", &all}}) {
    const auto op = named.second;
    EXPECT_ERROR(ArgumentError, op(Tensor::zeros({2, 2}), std::span<const int>(wrong), false), named.first,
                 "[-2, 2)", "2");
    EXPECT_THROW(op(Tensor(), {}, false), ArgumentError);
  }
}

}  // namespace athanor::compare_test
