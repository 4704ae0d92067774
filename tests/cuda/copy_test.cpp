#include "kernels/copy.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "kernels/convert.h"
#include "tests/cuda/device.h"

namespace athanor::copy_test {

using CopyOnDevice = test::DeviceTest;

CudaContext& context() {
  return cuda_context(test::device());
}

// An uninitialised dense tensor like y, here and there.
std::pair<Tensor, Tensor> two(const Shape& shape, DType dtype) {
  return {Tensor::empty(shape, {dtype, kCpu}), Tensor::empty(shape, {dtype, test::device()})};
}

TEST_F(CopyOnDevice, EveryPairOfTypesOverEveryCaseHasTheBitsOfTheCpu) {
  for (const auto& wanted : test::shape_cases()) {
    for (const DType from : kDTypes) {
      if (wanted.shape.numel() > 5000 && size_of(from) != 4) continue;
      const Tensor x = test::filled(wanted, from, {1, 1}, is_floating(from) ? -300 : 0, 300);
      const Tensor on = test::on_device_like(x);
      for (const DType to : kDTypes) {
        const auto [y, y_on] = two(x.shape(), to);
        kernels::copy(cpu_context(), x, y);
        kernels::copy(context(), on, y_on);
        EXPECT_TRUE(test::same_bits(y_on.to(kCpu), y))
            << fmt::format("{} {} {} to {}", wanted.shape, int(wanted.layout), from, to);
      }
    }
  }
}

TEST_F(CopyOnDevice, SpecialValuesConvertAsOnTheCpu) {
  const float infinity = std::numeric_limits<float>::infinity();
  const std::vector<float> values{0.0f,    -0.0f,   infinity, -infinity, 65504.0f,    65520.0f,   65519.9f,
                                  1e-8f,   6e-8f,   -6e-5f,   0x1p-25f,  0x1.8p-25f,  1e-40f,     0x1p-133f,
                                  3.4e38f, 0x1p31f, -0x1p31f, 0x1p63f,   -1e30f,      255.9f,     -0.9f,
                                  256.0f,  0.5f,    2049.0f,  2051.0f,   1.00390625f, 1.01171875f};
  const auto n = static_cast<std::int64_t>(values.size());
  for (const DType from : {DType::f64, DType::f32, DType::f16, DType::bf16}) {
    const Tensor x = Tensor::empty({n}, {from, kCpu});
    kernels::copy(cpu_context(), Tensor::from(values, {n}), x);
    for (const DType to : kDTypes) {
      const auto [y, y_on] = two({n}, to);
      kernels::copy(cpu_context(), x, y);
      kernels::copy(context(), x.to(test::device()), y_on);
      EXPECT_TRUE(test::same_bits(y_on.to(kCpu), y)) << fmt::format("{} to {}", from, to);
    }
  }
}

// The hardware's own conversions round as the portable ones do: every half, and floats around every half.
TEST_F(CopyOnDevice, EveryHalfAndItsNeighbours) {
  for (const DType dtype : {DType::f16, DType::bf16}) {
    std::vector<std::uint8_t> bytes;
    for (int bits = 0; bits < 65536; ++bits) {
      const bool nan = dtype == DType::f16 ? (bits & 0x7fff) > 0x7c00 : (bits & 0x7fff) > 0x7f80;
      if (nan) continue;
      bytes.push_back(static_cast<std::uint8_t>(bits & 255));
      bytes.push_back(static_cast<std::uint8_t>(bits >> 8));
    }
    const auto n = static_cast<std::int64_t>(bytes.size() / 2);
    const Tensor half = Tensor::from_bytes(std::as_bytes(std::span(bytes)), {n}, {dtype, kCpu});
    const auto [wide, wide_on] = two({n}, DType::f32);
    kernels::copy(cpu_context(), half, wide);
    kernels::copy(context(), half.to(test::device()), wide_on);
    ASSERT_TRUE(test::same_bits(wide_on.to(kCpu), wide));
    // The middle between two neighbours, and one bit beside it.
    const int shift = dtype == DType::f16 ? 12 : 15;
    for (const std::int64_t beside : {-1, 0, 1}) {
      const Tensor between = empty_like(wide);
      for (std::int64_t i = 0; i < n; ++i) {
        const auto bits = std::bit_cast<std::uint32_t>(wide.data<float>()[i]);
        const bool special = (bits & 0x7f800000u) == 0x7f800000u;
        between.data<float>()[i] = std::bit_cast<float>(
            special ? bits : static_cast<std::uint32_t>(bits + (1u << shift) + std::uint32_t(beside)));
      }
      const auto [back, back_on] = two({n}, dtype);
      kernels::copy(cpu_context(), between, back);
      kernels::copy(context(), between.to(test::device()), back_on);
      EXPECT_TRUE(test::same_bits(back_on.to(kCpu), back)) << name_of(dtype) << " " << beside;
    }
  }
}

TEST_F(CopyOnDevice, NaNStaysOrBecomesZeroOrTrue) {
  const Tensor x = Tensor::from(std::vector<float>{NAN, -NAN}, {2}, test::device());
  for (const DType to : kDTypes) {
    const Tensor y = Tensor::empty({2}, {to, test::device()});
    kernels::copy(context(), x, y);
    for (const double value : y.to_vector()) {
      if (is_floating(to)) {
        EXPECT_TRUE(std::isnan(value));
      } else {
        EXPECT_EQ(value, to == DType::boolean ? 1 : 0);
      }
    }
  }
}

TEST_F(CopyOnDevice, EveryPermutationBothWays) {
  for (const DType dtype : {DType::u8, DType::bf16, DType::f32, DType::f64}) {
    const Tensor x = test::filled({{3, 67, 2, 33}}, dtype, {2, 0}, 0, 200);
    const Tensor on = x.to(test::device());
    std::array<int, 4> order{0, 1, 2, 3};
    do {
      Shape shape = x.shape();
      Strides strides = x.shape();
      for (int i = 0; i < 4; ++i) {
        shape[i] = x.shape()[order[static_cast<std::size_t>(i)]];
        strides[i] = x.strides()[order[static_cast<std::size_t>(i)]];
      }
      const auto permuted = [&](const Tensor& t) { return t.view_as_strided(shape, strides, 0); };
      const auto [y, y_on] = two(shape, dtype);
      kernels::copy(cpu_context(), permuted(x), y);
      kernels::copy(context(), permuted(on), y_on);
      EXPECT_TRUE(test::same_bits(y_on.to(kCpu), y)) << shape.str();
      const Tensor back_on = empty_like(on);
      kernels::copy(context(), y_on, permuted(back_on));
      EXPECT_TRUE(test::same_bits(back_on.to(kCpu), x)) << shape.str();
    } while (std::next_permutation(order.begin(), order.end()));
  }
}

// Tiles that are full, cut off on either side, and many; under batches.
TEST_F(CopyOnDevice, TransposesOfEverySize) {
  const std::pair<std::int64_t, std::int64_t> sizes[] = {{64, 64}, {65, 63},  {16, 200}, {200, 16},
                                                         {33, 31}, {128, 65}, {15, 40},  {1, 70}};
  for (const DType dtype : {DType::boolean, DType::f16, DType::i32, DType::i64}) {
    for (const auto& [rows, cols] : sizes) {
      const Tensor x = test::filled({{2, cols, rows}}, dtype, {3, 0}, 0, 100);
      const auto view = [&, rows = rows, cols = cols](const Tensor& t) {
        return t.view_as_strided({2, rows, cols}, {rows * cols, 1, rows}, 0);
      };
      const auto [y, y_on] = two({2, rows, cols}, dtype);
      kernels::copy(cpu_context(), view(x), y);
      kernels::copy(context(), view(x.to(test::device())), y_on);
      EXPECT_TRUE(test::same_bits(y_on.to(kCpu), y)) << rows << " x " << cols;
    }
  }
}

TEST_F(CopyOnDevice, BroadcastsAndLeavesGapsAlone) {
  for (const DType dtype : {DType::u8, DType::bf16, DType::f32, DType::i64}) {
    for (const std::int64_t width : {3, 8, 16}) {
      const auto run = [&](auto& where, Device device) {
        const Tensor y = Tensor::empty({4, width + 5}, {dtype, device});
        kernels::fill(where, y, 7);
        const Tensor row = test::filled({{width}}, dtype, {4}, 0, 50).to(device);
        kernels::copy(where, row, y.view_as_strided({4, width}, {width + 5, 1}, 1));
        return y.to(kCpu);
      };
      EXPECT_TRUE(test::same_bits(run(context(), test::device()), run(cpu_context(), kCpu)));
    }
  }
}

TEST_F(CopyOnDevice, RowsOfEveryAlignment) {
  const Tensor x = test::filled({{1024}}, DType::u8, {5}, 0, 200);
  const Tensor on = x.to(test::device());
  for (const std::int64_t from : {0, 1, 2, 4, 8}) {
    for (const std::int64_t to : {0, 3, 8}) {
      for (const std::int64_t width : {1, 15, 16, 17, 32, 40}) {
        const auto run = [&](auto& where, const Tensor& source) {
          const Tensor y = Tensor::zeros({1024}, source.options());
          kernels::copy(where, source.view_as_strided({9, width}, {48, 1}, from),
                        y.view_as_strided({9, width}, {56, 1}, to));
          return y.to(kCpu);
        };
        EXPECT_TRUE(test::same_bits(run(context(), on), run(cpu_context(), x)));
      }
    }
  }
}

TEST_F(CopyOnDevice, AddIntoEveryPairOfTypesOverEveryCase) {
  for (const auto& wanted : test::shape_cases()) {
    for (const DType from : {DType::f64, DType::f32, DType::f16, DType::bf16}) {
      if (wanted.shape.numel() > 5000 && from != DType::f16) continue;
      const Tensor x = test::filled(wanted, from, {4, 0});
      for (const DType to : {DType::f64, DType::f32, DType::f16, DType::bf16}) {
        for (const bool strided : {false, true}) {
          const Tensor y =
              test::filled({wanted.shape, strided ? wanted.layout : test::Layout::dense}, to, {5, 0});
          const Tensor y_on = test::on_device_like(y);
          kernels::add_into(cpu_context(), x, y);
          kernels::add_into(context(), test::on_device_like(x), y_on);
          EXPECT_TRUE(test::same_bits(test::on_cpu_like(y_on), y))
              << fmt::format("{} {} {} to {}", wanted.shape, int(wanted.layout), from, to);
        }
      }
    }
  }
}

TEST_F(CopyOnDevice, FillArangeEyeOfEveryType) {
  for (const DType dtype : kDTypes) {
    const auto run = [&](auto& where, Device device) {
      std::vector<Tensor> results;
      for (const std::int64_t n : {0, 1, 5, 1000, 4099}) {
        const Tensor base = Tensor::zeros({n + 3}, {dtype, device});
        kernels::fill(where, base.view_as_strided({n}, {1}, 1), 3.7);  // off alignment
        results.push_back(base.to(kCpu));
        const Tensor aligned = Tensor::empty({n}, {dtype, device});
        kernels::fill(where, aligned, -2.5);
        results.push_back(aligned.to(kCpu));
        const Tensor range = Tensor::empty({n}, {dtype, device});
        kernels::arange(where, 0.5, 0.03, range);
        results.push_back(range.to(kCpu));
      }
      for (const Shape& shape : {Shape{3, 3}, Shape{2, 5}, Shape{5, 2}, Shape{0, 4}, Shape{4, 0}}) {
        const Tensor y = Tensor::empty(shape, {dtype, device});
        kernels::eye(where, y);
        results.push_back(y.to(kCpu));
      }
      return results;
    };
    const auto here = run(cpu_context(), kCpu), there = run(context(), test::device());
    for (std::size_t i = 0; i < here.size(); ++i) EXPECT_TRUE(test::same_bits(there[i], here[i])) << i;
  }
}

}  // namespace athanor::copy_test
