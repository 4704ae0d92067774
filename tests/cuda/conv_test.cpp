#include "kernels/conv.h"

#include "kernels/cpu/context.h"
#include "kernels/cuda/context.h"
#include "kernels/cuda/conv_list.h"
#include "kernels/cuda/vendor.h"
#include "tests/cuda/ops.h"
#include "tests/support/conv_cases.h"

namespace athanor::conv_test {

using test::context;
using ConvOnDevice = test::DeviceTest;
using test::conv_cases;
using test::ConvCase;
using test::exact;
using test::on_device_like;

using cuda::ConvCall;
using cuda::ConvPass;
using Implementation = cuda::Implementation<CudaContext, ConvImpl, ConvCall>;

template <class Context> void run(Context& on, const ConvCall& z) {
  switch (z.pass) {
    case ConvPass::forward: return kernels::conv2d_forward(on, z.params, z.x, z.w, z.bias, z.y);
    case ConvPass::backward_data: return kernels::conv2d_backward_data(on, z.params, z.y, z.w, z.x, z.write);
    case ConvPass::backward_weights:
      return kernels::conv2d_backward_weights(on, z.params, z.x, z.y, z.w, z.write, {}, z.write);
  }
}
/// A pass by one implementation on the device, and by its definition on the CPU.
void run(CudaContext& on, const Implementation& one, const ConvCall& call) {
  if (call.result().numel() > 0) {
    EXPECT_TRUE(one.run(on, call));
  }
}
void run(CpuContext& on, const Implementation&, const ConvCall& call) {
  run(on, call);
}

/// Calls f(implementation) with each of our own in the list that has code for such a pass.
template <class F>
void for_implementations(ConvPass pass, const Conv2dParams& params, const Tensor& x, const Tensor& w, F&& f) {
  const Tensor none, y = Tensor::empty(conv2d_shape(x.shape(), w.shape(), params), x.options());
  const ConvCall call{pass, params, x, w, none, y};
  int found = 0;
  for (const Implementation& one : cuda::conv_list<CudaContext>()) {
    if (one.impl == ConvImpl::vendor || !one.fits(context(), call)) continue;
    SCOPED_TRACE(one.name);
    f(one);
    ++found;
  }
  EXPECT_GT(found, 0);
}

// Every pass against the CPU's definition. x and w start `misaligned` by an element where asked.
void check_case(const ConvCase& c, DType dtype, test::Layout layout = test::Layout::dense) {
  SCOPED_TRACE(
      fmt::format("x {} w {} stride {} groups {} {}", c.x, c.w, c.params.stride[0], c.params.groups, dtype));
  Conv2dParams params = c.params;
  params.impl = ConvImpl::reference;
  const Shape out = conv2d_shape(c.x, c.w, params);
  const Tensor x = exact({c.x, layout}, dtype, {1}), w = exact({c.w, layout}, dtype, {2});
  const Tensor bias = exact({{out[3]}}, dtype, {3}), dy = exact({out, layout}, dtype, {4}), none;
  for_implementations(ConvPass::forward, params, x, w, [&](const Implementation& one) {
    for (const Activation activation : {Activation::none, Activation::relu}) {
      Conv2dParams activated = params;
      activated.activation = activation;
      test::expect_as_on_cpu(
          [&](const auto& on) {
            const Tensor y = on.empty(out, dtype), from = on(x), filters = on(w),
                         added = activation == Activation::none ? none : on(bias);
            run(on.context, one, {ConvPass::forward, activated, from, filters, added, y});
            return std::vector{y};
          },
          {0});
    }
  });
  for (const Write write : {Write::overwrite, Write::accumulate}) {
    // A CPU rounds the convolution to a half type, and then the sum; our kernels round once.
    const bool is_rounded = write == Write::accumulate && is_half(dtype);
    for_implementations(ConvPass::backward_data, params, x, w, [&](const Implementation& one) {
      test::expect_as_on_cpu(
          [&](const auto& on) {
            const Tensor dx = on(exact({c.x}, dtype, {7})), filters = on(w), from = on(dy);
            run(on.context, one, {ConvPass::backward_data, params, dx, filters, none, from, write});
            return std::vector{dx};
          },
          {is_rounded ? test::epsilon_of(dtype) : 0});
    });
    for_implementations(ConvPass::backward_weights, params, x, w, [&](const Implementation& one) {
      for (const DType to : {dtype, test::wide_dtype(dtype)}) {
        test::expect_as_on_cpu(
            [&](const auto& on) {
              const Tensor dw = on(exact({c.w}, to, {5})), images = on(x), from = on(dy);
              run(on.context, one, {ConvPass::backward_weights, params, images, dw, none, from, write});
              return std::vector{dw};
            },
            {0});
      }
    });
  }
}

TEST_F(ConvOnDevice, ThreeByThreeByHand) {
  // Rows 1 2 3 / 4 5 6 / 7 8 9 under the kernel 1 0 / 0 -1, not flipped: each value minus its lower right.
  const Tensor x = Tensor::from(std::vector<float>{1, 2, 3, 4, 5, 6, 7, 8, 9}, {1, 3, 3, 1}, test::device());
  const Tensor w = Tensor::from(std::vector<float>{1, 0, 0, -1}, {1, 2, 2, 1}, test::device());
  const Tensor y = Tensor::empty({1, 2, 2, 1}, {DType::f32, test::device()});
  for (const ConvImpl impl : {ConvImpl::reference, ConvImpl::automatic}) {
    kernels::conv2d_forward(context(), {.impl = impl}, x, w, {}, y);
    EXPECT_EQ(y.to_vector(), (std::vector<double>{-4, -4, -4, -4}));
  }
}

TEST_F(ConvOnDevice, EveryPassEqualsCpuInF64) {
  for (const ConvCase& c : conv_cases()) check_case(c, DType::f64);
}
TEST_F(ConvOnDevice, EveryPassEqualsCpuInF32) {
  for (const ConvCase& c : conv_cases()) check_case(c, DType::f32);
}
TEST_F(ConvOnDevice, EveryPassEqualsCpuInF16) {
  for (const ConvCase& c : conv_cases()) check_case(c, DType::f16);
}
TEST_F(ConvOnDevice, EveryPassEqualsCpuInBF16) {
  for (const ConvCase& c : conv_cases()) check_case(c, DType::bf16);
}

TEST_F(ConvOnDevice, TensorsMayStartOffAlignment) {
  for (const DType dtype : test::kFloating) {
    check_case({{2, 6, 6, 16}, {16, 3, 3, 16}, {.padding = {1, 1}}}, dtype, test::Layout::misaligned);
    check_case({{2, 6, 6, 16}, {16, 3, 3, 1}, {.padding = {1, 1}, .groups = 16}}, dtype,
               test::Layout::misaligned);
    check_case({{2, 5, 5, 16}, {16, 1, 1, 16}, {}}, dtype, test::Layout::misaligned);
  }
}

// Each pass with as many tiles of 128 x 128 as gemm() takes them for, with channels that are whole packets
// and such that are not.
TEST_F(ConvOnDevice, LargeTilesEqualCpu) {
  constexpr std::int64_t kLines = cuda::kMultiprocessors / 2 * 128;  // by two tiles of channels
  constexpr std::int64_t images = kLines / (16 * 16) + 1;
  const ConvCase forward[] = {{{images, 16, 16, 8}, {136, 2, 1, 8}, {.padding = {1, 0}}},  // y [npq, k]
                              {{images, 16, 16, 3}, {135, 2, 2, 3}, {.padding = {1, 1}}}};
  const ConvCase data[] = {{{images, 16, 16, 136}, {8, 2, 1, 136}, {.padding = {1, 0}}},  // dx [nhw, c]
                           {{images, 16, 16, 135}, {3, 2, 1, 135}, {.padding = {1, 0}}}};
  const ConvCase weights[] = {{{1, 4, 4, 232}, {1024, 3, 3, 232}, {}},  // dw [rsc, k]
                              {{1, 4, 4, 229}, {1025, 3, 3, 229}, {}}};
  const auto check = [](ConvPass pass, const ConvCase& c, DType dtype) {
    SCOPED_TRACE(fmt::format("{} {} {}", cuda::kernel_name(pass), c.x, dtype));
    Conv2dParams params = c.params;
    params.impl = ConvImpl::reference;
    const Shape out = conv2d_shape(c.x, c.w, params);
    const Tensor x = exact({c.x}, dtype, {1}), w = exact({c.w}, dtype, {2}), dy = exact({out}, dtype, {3}),
                 none;
    test::expect_as_on_cpu([&](const auto& on) {
      const Tensor result = on.empty(pass == ConvPass::forward         ? out
                                     : pass == ConvPass::backward_data ? c.x
                                                                       : c.w,
                                     dtype);
      const Tensor on_x = on(x), on_w = on(w), on_y = on(dy);
      const ConvCall call{pass, params, on_x, on_w, none, on_y};
      run(on.context, call.with(ConvImpl::reference, result));
      return std::vector{result};
    });
  };
  for (const DType dtype : {DType::f32, DType::f16}) {
    for (int odd = 0; odd < 2; ++odd) {
      check(ConvPass::forward, forward[odd], dtype);
      check(ConvPass::backward_data, data[odd], dtype);
      check(ConvPass::backward_weights, weights[odd], dtype);
    }
  }
}

// Weights whose gradients are summed in pieces.
TEST_F(ConvOnDevice, PiecesEqualCpu) {
  for (const DType dtype : {DType::f32, DType::f16}) {
    check_case({{3, 14, 14, 16}, {136, 3, 3, 16}, {.padding = {1, 1}}}, dtype);
    check_case({{1, 12, 12, 136}, {144, 1, 1, 136}, {}}, dtype);
  }
}

TEST_F(ConvOnDevice, GradientsOfBiasesEqualCpu) {
  for (const DType to : {DType::f16, DType::f32}) {
    for (const Write write : {Write::overwrite, Write::accumulate}) {
      test::expect_as_on_cpu(
          [&](const auto& on) {
            const Tensor x = on(exact({{2, 5, 5, 3}}, DType::f16, {1})),
                         dy = on(exact({{2, 3, 3, 8}}, DType::f16, {2})),
                         dw = on(exact({{8, 3, 3, 3}}, to, {3})), dbias = on(exact({{8}}, to, {4}));
            kernels::conv2d_backward_weights(on.context, {.impl = ConvImpl::reference}, x, dy, dw, write,
                                             dbias, write);
            return std::vector{dw, dbias};
          },
          {0});
    }
  }
}

// What 2^30 elements and more go in, here of a few images each.
TEST_F(ConvOnDevice, ImagesGoInRounds) {
  for (const std::int64_t groups : {1, 4}) {
    const Shape xs{7, 5, 6, 4}, ws{8, 3, 3, 4 / groups}, ys{7, 5, 6, 8};
    const Conv2dParams params{.padding = {1, 1}, .groups = groups, .impl = ConvImpl::reference};
    const Tensor x = exact({xs}, DType::f32, {1}), w = exact({ws}, DType::f32, {2}),
                 dy = exact({ys}, DType::f32, {3}), none;
    const auto check = [&](ConvPass pass, const Tensor& a, const Tensor& b, const Tensor& c, Write write) {
      for_implementations(pass, params, x, w, [&](const Implementation& one) {
        for (const std::int64_t most :
             {1, 70, 500, 10000}) {  // an image a round, two or none whole, several, all
          SCOPED_TRACE(fmt::format("groups {} at most {}", groups, most));
          test::expect_as_on_cpu(
              [&](const auto& on) {
                const Tensor on_a = on(clone(a)), on_b = on(clone(b)), on_c = on(clone(c));
                const ConvCall call{pass, params, on_a, on_b, none, on_c, write, nullptr, most};
                run(on.context, one, call);
                return std::vector{call.result()};
              },
              {0});
        }
      });
    };
    check(ConvPass::forward, x, w, Tensor::empty(ys), Write::overwrite);
    check(ConvPass::backward_data, Tensor::empty(xs), w, dy, Write::overwrite);
    check(ConvPass::backward_weights, x, exact({ws}, DType::f32, {4}), dy, Write::accumulate);
  }
}

// One element that is read everywhere: only sizes are looked at.
TEST_F(ConvOnDevice, ImagesTooLargeForTheirIndicesAreRefused) {
  const Tensor one = Tensor::zeros({1}, {DType::f32, test::device()});
  const auto image = [&](std::int64_t side, std::int64_t channels) {
    return one.view_as_strided({1, side, side, channels}, {0, 0, 0, 0}, 0);
  };
  const auto filter = [&](std::int64_t k, std::int64_t c) {
    return one.view_as_strided({k, 3, 3, c}, {0, 0, 0, 0}, 0);
  };
  const Conv2dParams depthwise{.padding = {1, 1}, .groups = 3, .impl = ConvImpl::reference};
  EXPECT_THROW(
      kernels::conv2d_forward(context(), depthwise, image(30000, 3), filter(3, 1), {}, image(30000, 3)),
      ArgumentError);
  const Conv2dParams plain{.padding = {1, 1}, .impl = ConvImpl::reference};
  EXPECT_THROW(kernels::conv2d_forward(context(), plain, image(40000, 3), filter(3, 3), {}, image(40000, 3)),
               ArgumentError);
}

TEST_F(ConvOnDevice, SumsThatRoundAreTheSameEveryTime) {
  const Conv2dParams params{.padding = {1, 1}, .impl = ConvImpl::reference};
  for (const DType dtype : test::kFloating) {
    const Tensor x = on_device_like(test::filled({{4, 12, 12, 8}}, dtype, {1}));
    const Tensor dy = on_device_like(test::filled({{4, 12, 12, 8}}, dtype, {2}));
    const Tensor first = Tensor::empty({8, 3, 3, 8}, {dtype, test::device()}), again = empty_like(first);
    for (const Tensor& dw : {first, again})
      kernels::conv2d_backward_weights(context(), params, x, dy, dw, Write::overwrite, {}, Write::overwrite);
    EXPECT_TRUE(test::same_bits(again.to(kCpu), first.to(kCpu)));
    const Tensor expected = Tensor::empty(first.shape(), {dtype});
    kernels::conv2d_backward_weights(cpu_context(), params, x.to(kCpu), dy.to(kCpu), expected,
                                     Write::overwrite, {}, Write::overwrite);
    const double sums = test::epsilon_of(dtype == DType::f64 ? DType::f64 : DType::f32);
    EXPECT_TRUE(test::close(first.to(kCpu), expected, 4 * 12 * 12 * sums + test::epsilon_of(dtype)));
  }
}

TEST_F(ConvOnDevice, GeluAndSiluAreFused) {
  for (const DType dtype : test::kFloating) {
    for (const std::int64_t groups : {1, 2, 8}) {
      for (const Activation activation : {Activation::gelu, Activation::silu}) {
        const Conv2dParams params{
            .padding = {1, 1}, .groups = groups, .activation = activation, .impl = ConvImpl::reference};
        const Tensor x = exact({{2, 5, 5, 8}}, dtype, {1}), w = exact({{8, 3, 3, 8 / groups}}, dtype, {2}),
                     bias = exact({{8}}, dtype, {3});
        test::expect_as_on_cpu(
            [&](const auto& on) {
              const Tensor y = on.empty({2, 5, 5, 8}, dtype);
              kernels::conv2d_forward(on.context, params, on(x), on(w), on(bias), y);
              return std::vector{y};
            },
            {4 * test::epsilon_of(dtype)});
      }
    }
  }
}

TEST_F(ConvOnDevice, EmptySizesGiveNothingOrZeros) {
  for (const DType dtype : test::kFloating) {
    check_case({{0, 6, 6, 3}, {4, 3, 3, 3}, {}}, dtype);
    check_case({{0, 6, 6, 4}, {4, 3, 3, 1}, {.groups = 4}}, dtype);
    check_case({{0, 6, 6, 4}, {4, 1, 1, 4}, {}}, dtype);
    check_case({{2, 6, 6, 3}, {0, 3, 3, 3}, {}}, dtype);
    check_case({{2, 6, 6, 3}, {0, 1, 1, 3}, {}}, dtype);
    check_case({{2, 0, 5, 3}, {4, 3, 3, 3}, {.padding = {2, 1}}}, dtype);
    check_case({{2, 0, 5, 4}, {4, 3, 3, 1}, {.padding = {2, 1}, .groups = 4}}, dtype);
  }
  // No channels: y is what is left, and the weights have no elements.
  const Tensor x = Tensor::empty({2, 4, 4, 0}, {DType::f32, test::device()}),
               w = Tensor::empty({3, 3, 3, 0}, {DType::f32, test::device()}),
               y = Tensor::empty({2, 2, 2, 3}, {DType::f32, test::device()});
  kernels::conv2d_forward(context(), {}, x, w, {}, y);
  EXPECT_EQ(y.to_vector(), std::vector<double>(24, 0.0));
  const Tensor bias = Tensor::from(std::vector<float>{1, -2, 3}, {3}, test::device());
  kernels::conv2d_forward(context(), {.activation = Activation::relu}, x, w, bias, y);
  const std::vector<double> found = y.to_vector();
  for (std::size_t i = 0; i < 24; ++i) EXPECT_EQ(found[i], i % 3 == 0 ? 1 : i % 3 == 1 ? 0 : 3);
}

TEST_F(ConvOnDevice, UnavailableImplementationsAreNamed) {
  const Tensor x = Tensor::zeros({1, 3, 3, 1}, {DType::f32, test::device()}),
               y = Tensor::empty({1, 1, 1, 1}, {DType::f32, test::device()});
  const auto run = [&](ConvImpl impl) { kernels::conv2d_forward(context(), {.impl = impl}, x, x, {}, y); };
  EXPECT_THROW(run(ConvImpl::direct), ArgumentError);
  EXPECT_THROW(run(ConvImpl::winograd), ArgumentError);
  if (!cuda::has_vendor()) {
    EXPECT_THROW(run(ConvImpl::vendor), BackendError);
  }
}

}  // namespace athanor::conv_test
