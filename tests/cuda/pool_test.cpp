#include "kernels/pool.h"

#include "tests/cuda/ops.h"
#include "tests/support/pool_cases.h"

namespace athanor::pool_test {

using test::context;
using PoolOnDevice = test::DeviceTest;
using kernels::PoolAxis;
using kernels::PoolWindows;
using test::filled;
using test::Layout;
using test::same_bits;

PoolAxis axis(std::int64_t inputs, std::int64_t window, std::int64_t stride, std::int64_t padding = 0,
              bool ceil_mode = false) {
  const std::int64_t room = inputs + 2 * padding - window;
  std::int64_t outputs = (room + (ceil_mode ? stride - 1 : 0)) / stride + 1;
  if ((outputs - 1) * stride >= inputs + padding) --outputs;
  return {inputs, outputs, window, stride, padding, false};
}
PoolAxis adaptive(std::int64_t inputs, std::int64_t outputs) {
  return {inputs, outputs, 1, 1, 0, true};
}

// Windows side by side, with and without a rest; overlapping; with gaps; padded; not square; larger than an
// 8-bit index.
std::vector<PoolWindows> max_windows() {
  return {{axis(6, 2, 2), axis(8, 2, 2)},        {axis(7, 2, 2), axis(9, 2, 2)},
          {axis(7, 3, 2, 1), axis(9, 3, 2, 1)},  {axis(8, 3, 2, 1, true), axis(8, 3, 2, 0, true)},
          {axis(5, 3, 1, 1), axis(6, 3, 1, 1)},  {axis(7, 2, 3), axis(8, 2, 3, 1)},
          {axis(7, 3, 3), axis(8, 2, 2)},        {axis(8, 2, 1, 1), axis(9, 4, 3, 2)},
          {axis(17, 17, 4, 3), axis(18, 17, 5)}, {axis(1, 1, 1), axis(1, 1, 1)}};
}
std::vector<PoolWindows> average_windows() {
  std::vector<PoolWindows> all = max_windows();
  for (const PoolWindows& windows : max_windows()) all.push_back({windows.h, windows.w, false});
  for (const auto& [h, w] : {std::pair{1, 1}, {3, 2}, {7, 9}, {2, 11}})
    all.push_back({adaptive(7, h), adaptive(9, w)});
  return all;
}

// A vector, several, a few single ones; off alignment.
const test::ShapeCase kChannels[] = {{{8}}, {{24}}, {{3}}, {{16}, Layout::misaligned}};

std::string describe(const PoolWindows& windows, DType dtype, const test::ShapeCase& channels) {
  const auto text = [](const PoolAxis& a) {
    return fmt::format("{}->{} window {} stride {} padding {}", a.inputs, a.outputs, a.window, a.stride,
                       a.padding);
  };
  return fmt::format("{}; {}; {} {}", text(windows.h), text(windows.w), dtype, channels.shape);
}

template <class F> void for_each_case(const std::vector<PoolWindows>& all, const F& f) {
  for (const PoolWindows& windows : all) {
    for (const DType dtype : test::kFloating) {
      for (const auto& channels : kChannels) {
        SCOPED_TRACE(describe(windows, dtype, channels));
        const std::int64_t C = channels.shape[0];
        const test::ShapeCase in{{2, windows.h.inputs, windows.w.inputs, C}, channels.layout};
        const test::ShapeCase out{{2, windows.h.outputs, windows.w.outputs, C}, channels.layout};
        f(windows, filled(in, dtype, {1}), filled(out, dtype, {2}));
      }
    }
  }
}

TEST_F(PoolOnDevice, MaxEqualsCpuBitForBit) {
  for_each_case(max_windows(), [](const PoolWindows& windows, const Tensor& x, const Tensor& dy) {
    const DType place = windows.h.window * windows.w.window <= 256 ? DType::u8 : DType::i32;
    test::expect_as_on_cpu([&](const auto& on) {
      const Tensor in = on(x), seed = on(dy), y = empty_like(seed), again = empty_like(seed),
                   dx = empty_like(in), index = on.empty(dy.shape(), place);
      kernels::max_pool_forward(on.context, windows, in, y, index);
      kernels::max_pool_forward(on.context, windows, in, again, Tensor());
      EXPECT_TRUE(same_bits(again.to(kCpu), y.to(kCpu)));
      kernels::max_pool_backward(on.context, windows, seed, index, dx);
      return std::vector{y, index, dx};
    });
  });
}

TEST_F(PoolOnDevice, AverageEqualsCpuBitForBit) {
  for_each_case(average_windows(), [](const PoolWindows& windows, const Tensor& x, const Tensor& dy) {
    test::expect_as_on_cpu([&](const auto& on) {
      const Tensor in = on(x), seed = on(dy), y = empty_like(seed), dx = empty_like(in);
      kernels::avg_pool_forward(on.context, windows, in, y);
      kernels::avg_pool_backward(on.context, windows, seed, dx);
      return std::vector{y, dx};
    });
  });
}

TEST_F(PoolOnDevice, DilatedMaximaAndTheirPositionsEqualCpu) {
  for (const test::PoolCase& c : test::dilated_pool_cases()) {
    for (const DType dtype : test::kFloating) {
      SCOPED_TRACE(fmt::format("{} {}", test::describe(c), dtype));
      test::expect_as_on_cpu([&](const auto& on) {
        const Tensor x = require_grad(on(filled({c.x}, dtype, {1})));
        const auto [y, indices] = max_pool2d_with_indices(x, c.params);
        backward(y, on(filled({y.shape()}, dtype, {2})));
        const Tensor back = max_unpool2d(y.detach(), indices, c.x[1], c.x[2]);
        return std::vector{y.detach(), indices, grad_of(x), back};
      });
    }
  }
}

// 8 channels: the vectors of f16; 1: single elements.
TEST_F(PoolOnDevice, NaNWinsAndMinusInfinityIsAValue) {
  for (const std::int64_t channels : {1, 8}) {
    std::vector<float> values;
    for (const float v : {-INFINITY, -INFINITY, 1.0f, NAN, 7.0f, -INFINITY})
      values.insert(values.end(), static_cast<std::size_t>(channels), v);
    const Tensor f32 = Tensor::from(values, {1, 1, 6, channels});
    const Tensor x = Tensor::empty(f32.shape(), {DType::f16, kCpu});
    for (std::int64_t i = 0; i < x.numel(); ++i) x.data<Half>()[i] = Half(f32.data<float>()[i]);
    const PoolWindows windows{axis(1, 1, 1), axis(6, 2, 2)};
    const Tensor y = Tensor::empty({1, 1, 3, channels}, {DType::f16, test::device()});
    const Tensor index = Tensor::empty(y.shape(), {DType::u8, test::device()});
    kernels::max_pool_forward(context(), windows, x.to(test::device()), y, index);
    const std::vector<double> found = y.to_vector(), won = index.to_vector();
    for (std::size_t c = 0; c < static_cast<std::size_t>(channels); ++c) {
      const auto n = static_cast<std::size_t>(channels);
      EXPECT_EQ(found[c], -INFINITY);
      EXPECT_TRUE(std::isnan(found[n + c]));
      EXPECT_EQ(found[2 * n + c], 7);
      EXPECT_EQ(won[c], 0);
      EXPECT_EQ(won[n + c], 1);
      EXPECT_EQ(won[2 * n + c], 0);
    }
  }
}

TEST_F(PoolOnDevice, AnInfiniteGradientStaysWhereItBelongs) {
  for (const std::int64_t stride : {2, 1}) {
    const PoolWindows windows{axis(2, 2, stride), axis(2, 2, stride)};
    const Tensor x = Tensor::from(std::vector<float>{1, 2, 4, 3}, {1, 2, 2, 1}, test::device()),
                 dx = empty_like(x);
    const Tensor y = Tensor::empty({1, 1, 1, 1}, x.options());
    const Tensor index = Tensor::empty(y.shape(), {DType::u8, test::device()});
    const Tensor dy = Tensor::from(std::vector<float>{INFINITY}, {1, 1, 1, 1}, test::device());
    kernels::max_pool_forward(context(), windows, x, y, index);
    kernels::max_pool_backward(context(), windows, dy, index, dx);
    EXPECT_EQ(dx.to_vector(), (std::vector<double>{0, 0, INFINITY, 0}));
  }
}

TEST_F(PoolOnDevice, EmptyBatchAndNoChannels) {
  for (const auto& [batch, channels] : {std::pair{0, 8}, {2, 0}}) {
    const PoolWindows windows{axis(4, 2, 2), axis(4, 2, 2)};
    const Tensor x = Tensor::empty({batch, 4, 4, channels}, {DType::f32, test::device()});
    const Tensor y = Tensor::empty({batch, 2, 2, channels}, {DType::f32, test::device()});
    const Tensor index = Tensor::empty(y.shape(), {DType::u8, test::device()});
    kernels::max_pool_forward(context(), windows, x, y, index);
    kernels::max_pool_backward(context(), windows, y, index, x);
    kernels::avg_pool_forward(context(), windows, x, y);
    kernels::avg_pool_backward(context(), windows, y, x);
  }
}

}  // namespace athanor::pool_test
