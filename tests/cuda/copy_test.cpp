#include <limits>

#include "kernels/convert.h"
#include "kernels/cpu/context.h"
#include "tests/cuda/ops.h"

namespace athanor::copy_test {

using test::context;
using CopyOnDevice = test::DeviceTest;

// y of that shape and dtype, a copy of x.
void expect_copy_as_on_cpu(const Tensor& x, DType to) {
  SCOPED_TRACE(fmt::format("{} to {}", x.dtype(), to));
  test::expect_as_on_cpu([&](const auto& on) {
    const Tensor y = on.empty(x.shape(), to);
    kernels::copy(on.context, on(x), y);
    return std::vector{y};
  });
}

TEST_F(CopyOnDevice, EveryPairOfTypesOverEveryCaseHasTheBitsOfTheCpu) {
  for (const auto& wanted : test::shape_cases()) {
    for (const DType from : kDTypes) {
      if (wanted.shape.numel() > 5000 && size_of(from) != 4) continue;
      const Tensor x = test::filled(wanted, from, {1, 1}, is_floating(from) ? -300 : 0, 300);
      SCOPED_TRACE(fmt::format("{} {}", wanted.shape, int(wanted.layout)));
      for (const DType to : kDTypes) expect_copy_as_on_cpu(x, to);
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
  for (const DType from : test::kFloating) {
    const Tensor x = Tensor::empty({n}, {from, kCpu});
    kernels::copy(cpu_context(), Tensor::from(values, {n}), x);
    for (const DType to : kDTypes) expect_copy_as_on_cpu(x, to);
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
    const Tensor wide = Tensor::empty({n});
    kernels::copy(cpu_context(), half, wide);
    expect_copy_as_on_cpu(half, DType::f32);
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
      SCOPED_TRACE(beside);
      expect_copy_as_on_cpu(between, dtype);
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
      expect_copy_as_on_cpu(permuted(x), dtype);
      const Tensor back_on = empty_like(on);
      kernels::copy(context(), contiguous(permuted(on)), permuted(back_on));
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
      expect_copy_as_on_cpu(x.view_as_strided({2, rows, cols}, {rows * cols, 1, rows}, 0), dtype);
    }
  }
}

TEST_F(CopyOnDevice, BroadcastsAndLeavesGapsAlone) {
  for (const DType dtype : {DType::u8, DType::bf16, DType::f32, DType::i64}) {
    for (const std::int64_t width : {3, 8, 16}) {
      const Tensor row = test::filled({{width}}, dtype, {4}, 0, 50);
      test::expect_as_on_cpu([&](const auto& on) {
        const Tensor y = on.empty({4, width + 5}, dtype);
        kernels::fill(on.context, y, 7);
        kernels::copy(on.context, on(row), y.view_as_strided({4, width}, {width + 5, 1}, 1));
        return std::vector{y};
      });
    }
  }
}

TEST_F(CopyOnDevice, RowsOfEveryAlignment) {
  const Tensor x = test::filled({{1024}}, DType::u8, {5}, 0, 200);
  for (const std::int64_t from : {0, 1, 2, 4, 8}) {
    for (const std::int64_t to : {0, 3, 8}) {
      for (const std::int64_t width : {1, 15, 16, 17, 32, 40}) {
        test::expect_as_on_cpu([&](const auto& on) {
          const Tensor y = on(Tensor::zeros({1024}, x.options()));
          kernels::copy(on.context, on(x).view_as_strided({9, width}, {48, 1}, from),
                        y.view_as_strided({9, width}, {56, 1}, to));
          return std::vector{y};
        });
      }
    }
  }
}

TEST_F(CopyOnDevice, AddIntoEveryPairOfTypesOverEveryCase) {
  for (const auto& wanted : test::shape_cases()) {
    for (const DType from : test::kFloating) {
      if (wanted.shape.numel() > 5000 && from != DType::f16) continue;
      const Tensor x = test::filled(wanted, from, {4, 0});
      for (const DType to : test::kFloating) {
        for (const bool strided : {false, true}) {
          SCOPED_TRACE(fmt::format("{} {} {} to {}", wanted.shape, int(wanted.layout), from, to));
          test::expect_as_on_cpu([&](const auto& on) {
            const Tensor y =
                on(test::filled({wanted.shape, strided ? wanted.layout : test::Layout::dense}, to, {5, 0}));
            kernels::add_into(on.context, on(x), y);
            return std::vector{y};
          });
        }
      }
    }
  }
}

TEST_F(CopyOnDevice, FillArangeEyeOfEveryType) {
  for (const DType dtype : kDTypes) {
    test::expect_as_on_cpu([&](const auto& on) {
      std::vector<Tensor> results;
      for (const std::int64_t n : {0, 1, 5, 1000, 4099}) {
        const Tensor base = on(Tensor::zeros({n + 3}, {dtype})), aligned = on.empty({n}, dtype),
                     range = on.empty({n}, dtype);
        kernels::fill(on.context, base.view_as_strided({n}, {1}, 1), 3.7);  // off alignment
        kernels::fill(on.context, aligned, -2.5);
        kernels::arange(on.context, 0.5, 0.03, range);
        results.insert(results.end(), {base, aligned, range});
      }
      for (const Shape& shape : {Shape{3, 3}, Shape{2, 5}, Shape{5, 2}, Shape{0, 4}, Shape{4, 0}}) {
        results.push_back(on.empty(shape, dtype));
        kernels::eye(on.context, results.back());
      }
      return results;
    });
  }
}

}  // namespace athanor::copy_test
