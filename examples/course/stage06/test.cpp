#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "autograd.h"
#include "fast.h"
#include "gpu.h"
#include "kernels.h"
#include "random.h"
#include "simt/emulator/counters.h"
#include "simt/emulator/options.h"

// All kernels here run under the race detector: a race is an error of the launch, whose text is the test's
// message.

namespace {

using namespace engine;

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr std::size_t kMargin = 64;

// Whole numbers from -4 to 4: f16 holds them, and their products and sums are exact in any order.
std::vector<float> whole_numbers(int count, std::uint64_t seed) {
  std::vector<float> x(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(random_bits(seed, i) % 9) - 4;
  return x;
}

template <class T> std::vector<T> with_margins(const std::vector<T>& x, T margin) {
  std::vector<T> around(x.size() + 2 * kMargin, margin);
  std::copy(x.begin(), x.end(), around.begin() + kMargin);
  return around;
}

struct Problem {
  ProductSize size;
  std::vector<float> a, b, c;  // b [k, n]
  explicit Problem(ProductSize of)
      : size(of),
        a(whole_numbers(of.m * of.k, 1)),
        b(whole_numbers(of.k * of.n, 2)),
        c(whole_numbers(of.m * of.n, 3)) {}

  std::vector<float> expected() const {
    std::vector<float> sums = c;
    for (int i = 0; i < size.m; ++i)
      for (int j = 0; j < size.n; ++j)
        for (int k = 0; k < size.k; ++k)
          sums[at(i, j)] +=
              a[static_cast<std::size_t>(i * size.k + k)] * b[static_cast<std::size_t>(k * size.n + j)];
    return sums;
  }
  std::size_t at(int i, int j) const { return static_cast<std::size_t>(i * size.n + j); }

  // What is wrong with a result; empty if nothing is. What all wrong elements have in common is named.
  std::string wrong(const std::vector<float>& result) const {
    const std::vector<float> right = expected();
    bool all_as_before = true, all_without_c = true, all_at_the_edge = true;
    std::string text;
    for (int i = 0; i < size.m; ++i)
      for (int j = 0; j < size.n; ++j) {
        const float is = result[at(i, j)], must = right[at(i, j)], before = c[at(i, j)];
        if (is == must) continue;
        all_as_before &= is == before;
        all_without_c &= is == must - before;
        all_at_the_edge &= i >= 8 || j >= 8;
        if (text.empty())
          text = std::to_string(size.m) + " x " + std::to_string(size.n) + " with depth " +
                 std::to_string(size.k) + ": c(" + std::to_string(i) + ", " + std::to_string(j) +
                 ") must be " + std::to_string(must) + ", but is " + std::to_string(is) +
                 (std::isnan(is) ? ": a number that is not of a or b was used" : "");
      }
    if (text.empty()) return "";
    if (all_as_before) text += ", as before: no thread added to it";
    if (all_as_before && (all_at_the_edge || result == c))
      text += ". The grid needs a block for the last tile, too, which is not full";
    if (all_without_c) text += ": the products must be added to what c holds";
    return text;
  }
};

// Runs a kernel between margins, which must not be changed, nor used. Empty where all is right.
using Kernel = void (*)(ProductSize, const float*, const float*, float*);
std::string run(Kernel kernel, ProductSize size) {
  const Problem problem(size);
  const DeviceArray<float> a(with_margins(problem.a, kNaN)), b(with_margins(problem.b, kNaN)),
      c(with_margins(problem.c, 77.0f));
  std::vector<float> around;
  try {
    kernel(size, a.data() + kMargin, b.data() + kMargin, c.data() + kMargin);
    around = c.values();
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  for (std::size_t i = 0; i < around.size(); ++i)
    if ((i < kMargin || i >= around.size() - kMargin) && around[i] != 77)
      return "memory beside c was written, " +
             std::to_string(static_cast<long>(i) - static_cast<long>(kMargin)) + " floats from its beginning";
  return problem.wrong({around.begin() + kMargin, around.end() - kMargin});
}

// The factors as matmul_mma wants them: f16, and b by columns.
void mma_by_floats(ProductSize size, const float* a, const float* b, float* c) {
  const auto of_device = [](const float* from, int count) {
    std::vector<float> x(static_cast<std::size_t>(count));
    check(cudaMemcpy(x.data(), from, x.size() * sizeof(float), cudaMemcpyDeviceToHost), "cudaMemcpy");
    return x;
  };
  const std::vector<float> left = of_device(a, size.m * size.k), right = of_device(b, size.k * size.n);
  std::vector<std::uint16_t> f16_left(left.size()), f16_right(right.size());
  std::transform(left.begin(), left.end(), f16_left.begin(), f16_bits);
  for (int k = 0; k < size.k; ++k)
    for (int j = 0; j < size.n; ++j)
      f16_right[static_cast<std::size_t>(j * size.k + k)] =
          f16_bits(right[static_cast<std::size_t>(k * size.n + j)]);
  const std::uint16_t nan = f16_bits(kNaN);
  const DeviceArray<std::uint16_t> device_left(with_margins(f16_left, nan)),
      device_right(with_margins(f16_right, nan));
  matmul_mma(size, device_left.data() + kMargin, device_right.data() + kMargin, c);
  check(cudaDeviceSynchronize(), "the kernel");
}

const simt::Order kOrders[] = {
    {simt::Order::Kind::forward, 1}, {simt::Order::Kind::reverse, 1}, {simt::Order::Kind::random, 7}};

// Every size in every order of threads.
std::string run_all(Kernel kernel, const std::vector<ProductSize>& sizes) {
  for (const simt::Order& order : kOrders) {
    simt::options().threads = order;
    for (const ProductSize& size : sizes)
      if (const std::string wrong = run(kernel, size); !wrong.empty())
        return wrong +
               (order.kind == simt::Order::Kind::forward ? "" : " (right with threads in another order)");
  }
  return "";
}

const std::vector<ProductSize> kSizes = {{1, 1, 1},    {3, 5, 2},   {16, 16, 16}, {17, 16, 15},
                                         {16, 33, 17}, {32, 8, 40}, {31, 65, 33}, {70, 19, 5}};

simt::KernelCounts counted(Kernel kernel, ProductSize size) {
  simt::start_counting();
  const std::string wrong = run(kernel, size);
  const simt::Counts counts = simt::stop_counting();
  EXPECT_EQ(wrong, "") << "accesses are counted of a kernel that is right";
  EXPECT_EQ(counts.kernels.size(), 1u) << "the product must be one kernel";
  return counts.kernels.empty() ? simt::KernelCounts{} : counts.kernels[0];
}

// Whether all bits are those of one sum in the order of k, each product rounded before it is added, or not
// (fused).
std::string in_order(Kernel kernel) {
  constexpr int m = 3, n = 5, k = 50;
  const std::vector<float> a = random_tensor({m, k}, 9).values(), b = random_tensor({k, n}, 10).values(),
                           before = random_tensor({m, n}, 11).values();
  const DeviceArray<float> device_a(a), device_b(b), c(before);
  kernel({m, n, k}, device_a.data(), device_b.data(), c.data());
  const std::vector<float> result = c.values();
  std::vector<float> sums[2] = {before, before};
  for (std::size_t at = 0; at < result.size(); ++at)
    for (std::size_t d = 0; d < k; ++d) {
      const float left = a[at / n * k + d], right = b[d * n + at % n];
      const volatile float product = left * right;
      sums[0][at] += product;
      sums[1][at] = std::fma(left, right, sums[1][at]);
    }
  if (result == sums[0] || result == sums[1]) return "";
  return "the numbers are right, and the last bits are not: products must be added to what c holds, in the "
         "order of k, and no sum of a tile be added at its end";
}

TEST(Simple, EverySize) {
  ASSERT_EQ(run_all(matmul_simple, kSizes), "");
  ASSERT_EQ(in_order(matmul_simple), "");
}

TEST(Simple, LanesHaveAdjacentColumns) {
  const std::uint64_t sectors =
      counted(matmul_simple, {64, 64, 64}).total(simt::AccessKind::global_read).sectors;
  ASSERT_LE(sectors, 128u * 64 * 5 + 512)
      << "at 64 x 64 x 64 the kernel read " << sectors
      << " sectors of 32 bytes. A warp that has 32 adjacent columns of one row needs 5 for each "
      << "depth, 1 of a and 4 of b: 41,472 with those of c. Let threadIdx.x count columns: those of a warp "
         "differ in threadIdx.x first";
}

TEST(Tiled, EverySize) {
  ASSERT_EQ(run_all(matmul_tiled, kSizes), "");
  ASSERT_EQ(in_order(matmul_tiled), "");
}

TEST(Tiled, HasNoRace) {
  // Three tiles of depth, so that the second is loaded after the first was read.
  ASSERT_EQ(run(matmul_tiled, {32, 32, 96}), "")
      << "a barrier must stand after the tiles are written, before they are read; and another after they are "
         "read, before the next are written";
}

TEST(Tiled, ReadsANumberOnceForATile) {
  const std::uint64_t sectors =
      counted(matmul_tiled, {64, 64, 64}).total(simt::AccessKind::global_read).sectors;
  ASSERT_LE(sectors, 2u * 512 * 4 + 512)
      << "at 64 x 64 x 64 the kernel read " << sectors
      << " sectors of 32 bytes. With tiles of 16 x 16 each number of a and b is read four times, by rows of "
      << "a tile: 4,608 sectors with those of c";
}

TEST(Tiled, ReadsSharedMemoryInOneRound) {
  const simt::KernelCounts counts = counted(matmul_tiled, {64, 64, 64});
  const simt::AccessCount read = counts.total(simt::AccessKind::shared_read),
                          write = counts.total(simt::AccessKind::shared_write);
  ASSERT_GT(write.warps, 0u) << "the tiles must be in shared memory";
  ASSERT_EQ(read.rounds, read.fewest_rounds)
      << "lanes of a warp read different lines of one bank (bank conflicts): " << read.rounds
      << " rounds, where " << read.fewest_rounds << " would do. In right[d][x], x must be threadIdx.x";
  ASSERT_EQ(write.rounds, write.fewest_rounds)
      << "lanes of a warp write to different lines of one bank (bank conflicts): " << write.rounds
      << " rounds, where " << write.fewest_rounds << " would do";
}

// One instruction's worth, 16 x 8, with typical mistakes by name: `from` says which element of a or b a place
// gets, `to` where a sum goes.
struct Place {
  int row, column;
};
std::vector<float> fragments_with(const Problem& problem, const std::function<Place(int, int)>& of_a,
                                  const std::function<Place(int, int)>& of_b,
                                  const std::function<Place(int, int)>& of_c) {
  std::vector<float> sums = problem.c;
  for (int i = 0; i < 16; ++i)
    for (int j = 0; j < 8; ++j) {
      float sum = 0;
      for (int k = 0; k < problem.size.k; ++k) {
        const int first = k / 16 * 16;
        const Place a = of_a(i, k % 16), b = of_b(k % 16, j);
        sum += problem.a[static_cast<std::size_t>(a.row * problem.size.k + first + a.column)] *
               problem.b[static_cast<std::size_t>((first + b.row) * 8 + b.column)];
      }
      const Place c = of_c(i, j);
      sums[problem.at(c.row, c.column)] += sum;
    }
  return sums;
}

TEST(Mma, FragmentsAreInTheirPlaces) {
  const Problem problem({16, 8, kMmaDepth});
  const DeviceArray<float> a(problem.a), b(problem.b), c(problem.c);
  mma_by_floats(problem.size, a.data(), b.data(), c.data());
  const std::vector<float> result = c.values();
  const auto same = [](int i, int j) { return Place{i, j}; };
  const auto registers_of_a = [](int i, int k) {
    return (i < 8) == (k < 8) ? Place{i, k} : Place{(i + 8) % 16, (k + 8) % 16};
  };
  const auto halves = [](int i, int k) { return Place{i, k ^ 1}; };
  const auto registers_of_b = [](int k, int j) { return Place{k ^ 8, j}; };
  const auto turned = [](int k, int j) { return k < 8 ? Place{j, k} : Place{j + 8, k - 8}; };
  const auto registers_of_c = [](int i, int j) {
    return (i < 8) == (j % 2 == 0) ? Place{i, j} : Place{(i + 8) % 16, j ^ 1};
  };
  ASSERT_NE(result, fragments_with(problem, registers_of_a, same, same))
      << "a[1] and a[2] are exchanged: a[1] is 8 rows below a[0], a[2] 8 depths to the right of it";
  ASSERT_NE(result, fragments_with(problem, halves, same, same))
      << "the two f16 of a register of a are exchanged: the lower depth is in the low bits";
  ASSERT_NE(result, fragments_with(problem, same, registers_of_b, same))
      << "b0 and b1 are exchanged: b1 is 8 depths below b0";
  ASSERT_NE(result, fragments_with(problem, same, turned, same))
      << "b is read as if it were transposed: a lane's column is g, its depths 2 t and 2 t + 1";
  ASSERT_NE(result, fragments_with(problem, same, same, registers_of_c))
      << "c[1] and c[2] are exchanged: c[1] is in the next column, c[2] 8 rows below c[0]";
  ASSERT_EQ(problem.wrong(result), "");
}

TEST(Mma, EverySize) {
  std::vector<ProductSize> sizes = kSizes;
  for (ProductSize& size : sizes) size.k = (size.k + 15) / 16 * kMmaDepth;
  ASSERT_EQ(run_all(mma_by_floats, sizes), "");
}

TEST(Mma, ReadsFragmentsInOneRound) {
  const simt::AccessCount read = counted(mma_by_floats, {64, 64, 128}).total(simt::AccessKind::shared_read);
  ASSERT_GT(read.warps, 0u) << "the factors must come by way of shared memory";
  ASSERT_EQ(read.rounds, read.fewest_rounds)
      << "the fragments are read in " << read.rounds << " rounds, where " << read.fewest_rounds
      << " would do: the eight lines that a warp reads at once begin in the same banks. Store each line "
      << "with 8 f16 (4 words) more than it holds";
}

TEST(Engine, ComputesOnTheDevice) {
  const auto gradients = [](Product by) {
    product = by;
    const Variable x(Tensor({7, 5}, whole_numbers(35, 4)), true),
        w(Tensor({9, 5}, whole_numbers(45, 5)), true);
    const Variable y = matmul(x, transpose(w, 0, 1));
    backward(sum_all(mul(y, Variable(Tensor({7, 9}, whole_numbers(63, 6))))));
    std::vector<std::vector<float>> all{y.value().values(), x.grad().values(), w.grad().values()};
    product = fast_matmul;
    return all;
  };
  ASSERT_EQ(gradients(cuda_matmul), gradients(fast_matmul))
      << "y, dL/dx and dL/dw of y = x w^T must not depend on where the product is computed; some "
         "of these matrices are transposed, with a row_stride of 1";
  std::vector<float> c(40, 77);
  const std::vector<float> a = whole_numbers(6, 7), b = whole_numbers(8, 8);
  cuda_matmul({a.data(), 3, 2, 2, 1}, {b.data(), 2, 4, 4, 1}, c.data(), 10);
  for (int i = 0; i < 4; ++i)
    for (int j = 0; j < 10; ++j) {
      float must = 77;
      for (int k = 0; i < 3 && j < 4 && k < 2; ++k)
        must += a[static_cast<std::size_t>(i * 2 + k)] * b[static_cast<std::size_t>(k * 4 + j)];
      ASSERT_EQ(c[static_cast<std::size_t>(i * 10 + j)], must)
          << "row " << i << ", column " << j
          << ": c is 3 x 4, with rows 10 floats apart, and keeps what it held";
    }
  cuda_matmul({a.data(), 3, 0, 0, 1}, {b.data(), 0, 4, 4, 1}, c.data(),
              10);  // nothing to do, and no launch of it
}

TEST(Engine, RoundsFactorsAndKeepsSums) {
  const std::vector<float> a{2049, 1, 0.1f}, b{1, 1, 0};
  float c = 0.5f;
  cuda_matmul_f16({a.data(), 1, 3, 3, 1}, {b.data(), 3, 1, 1, 1}, &c, 1);
  ASSERT_EQ(c, 2049.5f) << "2049 is rounded to an f16, 2048; the sum 2048 + 1 + 0.5 is f32, and not rounded. "
                           "The depth of 3 is filled up with zeros";
  const std::vector<float> x = whole_numbers(15, 12), y = whole_numbers(20, 13);
  const Matrix left{x.data(), 3, 5, 1, 3}, right{y.data(), 5, 4, 1, 5};  // both by columns
  std::vector<float> by_mma(30, 1), expected(30, 1);
  cuda_matmul_f16(left, right, by_mma.data(), 10);
  fast_matmul(left, right, expected.data(), 10);
  ASSERT_EQ(by_mma, expected) << "3 x 5 times 5 x 4, both by columns, into rows that are 10 floats apart";
  cuda_matmul_f16({x.data(), 3, 0, 0, 1}, {y.data(), 0, 4, 4, 1}, by_mma.data(), 10);
  cuda_matmul_f16({x.data(), 0, 5, 5, 1}, {y.data(), 5, 4, 4, 1}, by_mma.data(), 10);
  ASSERT_EQ(by_mma, expected) << "without depth or rows nothing happens";
}

}  // namespace
