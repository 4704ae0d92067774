#include "kernels/cpu/context.h"
#include "kernels/norm.h"
#include "tests/cuda/ops.h"

// Layer norms and group norms: the same tests, of rows that are normalised and of groups of channels.

namespace athanor::layer_norm_test {

using LayerNormOnDevice = test::DeviceTest;
using GroupNormOnDevice = test::DeviceTest;
using kernels::GradientTarget;
using test::context;
using test::epsilon_of;
using test::filled;
using test::Layout;
using test::wide_dtype;

struct Case {
  test::ShapeCase x;
  std::int64_t groups = 0;  ///< none: a layer norm
};

// Rows that a warp holds in one vector a thread and in several, that a block does, and that nobody does;
// more rows than run at once; off alignment.
const Case kLayers[] = {{{{3, 1}}},     {{{5, 7}}},
                        {{{70, 8}}},    {{{2, 9, 40}}},
                        {{{21, 256}}},  {{{13, 768}}},
                        {{{2100, 16}}}, {{{7, 1032}}},
                        {{{5, 2048}}},  {{{3, 3000}}},
                        {{{3, 8200}}},  {{{2, 1301}}},
                        {{{1, 4096}}},  {{{9, 64}, Layout::misaligned}}};
// Channels of whole vectors and others, groups within a vector and across several, many pixels, one, off
// alignment.
const Case kGroups[] = {{{{2, 3, 4, 6}}, 3},
                        {{{2, 5, 4, 8}}, 2},
                        {{{3, 5, 3, 16}}, 16},
                        {{{1, 40, 40, 2}}, 1},
                        {{{2, 1, 1, 8}}, 2},
                        {{{1, 33, 31, 1}}, 1},
                        {{{4, 24}}, 3},
                        {{{2, 9, 7, 96}}, 32},
                        {{{2, 2, 2, 1032}}, 43},
                        {{{3, 70, 64, 8}}, 8},
                        {{{9, 4, 64}, Layout::misaligned}, 4}};

double tolerance(DType dtype) {
  return 2 * epsilon_of(dtype) + 64 * epsilon_of(wide_dtype(dtype));
}
double sum_tolerance(DType dtype) {
  return 256 * epsilon_of(wide_dtype(dtype));
}

template <class Context>
void forward(Context& on, std::int64_t groups, const Tensor& x, const Tensor& gamma, const Tensor& beta,
             double eps, const Tensor& stats, const Tensor& y) {
  groups == 0 ? kernels::layer_norm_forward(on, x, gamma, beta, eps, stats, y)
              : kernels::group_norm_forward(on, x, gamma, beta, eps, stats, y);
}
template <class Context>
void backward(Context& on, std::int64_t groups, const Tensor& x, const Tensor& gamma, const Tensor& stats,
              const Tensor& dy, const Tensor& dx, const GradientTarget& dgamma, const GradientTarget& dbeta) {
  groups == 0 ? kernels::layer_norm_backward(on, x, gamma, stats, dy, dx, dgamma, dbeta)
              : kernels::group_norm_backward(on, x, gamma, stats, dy, dx, dgamma, dbeta);
}

struct Operands {
  std::int64_t groups;
  Tensor x, gamma, beta, stats, dy;

  Operands(const Case& c, DType dtype)
      : groups(c.groups),
        x(filled(c.x, dtype, {1}, -1, 3)),
        gamma(filled({{x.dim(-1)}}, wide_dtype(dtype), {2}, 0.5, 1.5)),
        beta(filled({{x.dim(-1)}}, wide_dtype(dtype), {3})),
        stats(Tensor::empty(groups == 0 ? Shape{x.numel() / x.dim(-1), 2} : Shape{x.dim(0), groups, 2},
                            {wide_dtype(dtype), kCpu})),
        dy(filled(c.x, dtype, {4})) {}
};

void check_forward(std::span<const Case> cases) {
  for (const DType dtype : test::kFloating) {
    for (const Case& c : cases) {
      for (const bool bare : {false, true}) {
        SCOPED_TRACE(fmt::format("{} {} in {} {}", dtype, c.x.shape, c.groups, bare));
        Operands t(c, dtype);
        if (bare) t.gamma = t.beta = {};
        test::expect_as_on_cpu(
            [&](const auto& on) {
              const Tensor stats = on(t.stats), y = on(test::make(c.x, dtype));
              forward(on.context, t.groups, on(t.x), on(t.gamma), on(t.beta), 1e-5, stats, y);
              return std::vector{stats, y};
            },
            {sum_tolerance(dtype), tolerance(dtype)});
      }
    }
  }
}

void check_backward(const Operands& t, bool input, bool parameters) {
  forward(cpu_context(), t.groups, t.x, t.gamma, t.beta, 1e-3, t.stats, empty_like(t.x));
  const DType dtype = t.x.dtype(), wide = wide_dtype(dtype);
  test::expect_as_on_cpu(
      [&](const auto& on) {
        const Shape channels{t.x.dim(-1)};
        std::vector<Tensor> results(3);
        if (input) results[0] = on(filled({t.x.shape()}, dtype, {8}));
        if (parameters) results[1] = on(filled({channels}, wide, {6}));
        if (parameters) results[2] = on(filled({channels}, wide, {7}));
        backward(on.context, t.groups, on(t.x), on(t.gamma), on(t.stats), on(t.dy), results[0],
                 {results[1], Write::accumulate}, {results[2], Write::overwrite});
        return results;
      },
      {tolerance(dtype), sum_tolerance(dtype)});
}

void check_backward(std::span<const Case> cases) {
  for (const DType dtype : test::kFloating) {
    for (const Case& c : cases) {
      for (const bool bare : {false, true}) {
        SCOPED_TRACE(fmt::format("{} {} in {} {}", dtype, c.x.shape, c.groups, bare));
        Operands t(c, dtype);
        if (bare) t.gamma = {};
        check_backward(t, true, true);
      }
    }
  }
}

TEST_F(LayerNormOnDevice, ForwardEqualsCpu) {
  check_forward(kLayers);
}
TEST_F(GroupNormOnDevice, ForwardEqualsCpu) {
  check_forward(kGroups);
}
TEST_F(LayerNormOnDevice, BackwardEqualsCpu) {
  check_backward(kLayers);
}
TEST_F(GroupNormOnDevice, BackwardEqualsCpu) {
  check_backward(kGroups);
}

TEST_F(LayerNormOnDevice, BackwardWritesOnlyRequestedGradients) {
  for (const Case& c : {Case{{{19, 64}}}, Case{{{19, 9}}}, Case{{{3, 40, 20, 16}}, 4}}) {
    const Operands t(c, DType::f16);
    check_backward(t, true, false);
    check_backward(t, false, true);
  }
}

TEST_F(GroupNormOnDevice, RepeatsItselfBitForBit) {
  const Operands t({{{3, 40, 20, 16}}, 4}, DType::f16);
  forward(cpu_context(), t.groups, t.x, t.gamma, t.beta, 1e-3, t.stats, empty_like(t.x));
  const auto run = [&] {
    const auto on = test::on_device_like;
    const Tensor dx = on(t.x), dgamma = on(t.gamma), dbeta = on(t.beta);
    kernels::group_norm_backward(context(), on(t.x), on(t.gamma), on(t.stats), on(t.dy), dx,
                                 {dgamma, Write::accumulate}, {dbeta, Write::overwrite});
    return std::pair{dx.to(kCpu), dgamma.to(kCpu)};
  };
  const auto first = run(), again = run();
  EXPECT_TRUE(test::same_bits(again.first, first.first));
  EXPECT_TRUE(test::same_bits(again.second, first.second));
}

TEST_F(LayerNormOnDevice, NothingToNormalise) {
  for (const auto& [shape, groups] :
       {std::pair<Shape, std::int64_t>{{0, 8}, 0}, {{0, 9}, 0}, {{0, 3, 8}, 2}, {{2, 0, 8}, 2}}) {
    const TensorOptions f32{DType::f32, test::device()};
    const std::int64_t size = shape[shape.rank() - 1];
    const Tensor x = Tensor::empty(shape, f32),
                 stats = Tensor::empty(groups == 0 ? Shape{0, 2} : Shape{shape[0], groups, 2}, f32);
    const Tensor before = filled({{size}}, DType::f32), dgamma = test::on_device_like(before),
                 dbeta = test::on_device_like(before);
    forward(context(), groups, x, {}, {}, 1e-5, stats, empty_like(x));
    backward(context(), groups, x, {}, stats, x, empty_like(x), {dgamma, Write::overwrite},
             {dbeta, Write::accumulate});
    EXPECT_EQ(dgamma.to(kCpu).to_vector(), std::vector<double>(static_cast<std::size_t>(size), 0.0));
    EXPECT_TRUE(test::same_bits(dbeta.to(kCpu), before));
  }
}

}  // namespace athanor::layer_norm_test
