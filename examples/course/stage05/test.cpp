#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <new>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "conv.h"
#include "fast.h"
#include "nn.h"
#include "random.h"

namespace {
std::atomic<std::size_t> largest_allocation{0};
}

// Not inlined, or g++ sees malloc where it expects new, and warns.
[[gnu::noinline]] void* operator new(std::size_t bytes) {
  if (bytes > largest_allocation) largest_allocation = bytes;
  if (void* memory = std::malloc(bytes)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}

namespace {

using namespace engine;

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

// Whole numbers from -4 to 4: their products and sums are exact in any order.
std::vector<float> whole_numbers(std::int64_t count, std::uint64_t seed) {
  std::vector<float> x(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(random_bits(seed, i) % 9) - 4;
  return x;
}

Matrix dense(const std::vector<float>& x, std::int64_t rows, std::int64_t columns) {
  return {x.data(), rows, columns, columns, 1};
}

std::string sizes(std::int64_t m, std::int64_t k, std::int64_t n) {
  return std::to_string(m) + " x " + std::to_string(k) + " times " + std::to_string(k) + " x " +
         std::to_string(n);
}

// c[i, j] + the products of depths from `begin` to `end`, added in the order of k, each rounded before or not
// (fused).
float summed(const Matrix& a, const Matrix& b, std::int64_t i, std::int64_t j, std::int64_t begin,
             std::int64_t end, float c, bool fused) {
  for (std::int64_t k = begin; k < end; ++k) {
    const volatile float rounded = a.at(i, k) * b.at(k, j);
    c = fused ? std::fma(a.at(i, k), b.at(k, j), c) : c + rounded;
  }
  return c;
}

// Empty where the product is right; else where it first is not, and what that place has in common with
// others.
std::string wrong_place(const Matrix& a, const Matrix& b, const std::vector<float>& c) {
  const std::int64_t m = a.rows, n = b.columns, k = a.columns, last = (k - 1) / kBlockDepth * kBlockDepth;
  bool only_last_block = k > kBlockDepth;
  std::string place;
  for (std::int64_t i = 0; i < m; ++i)
    for (std::int64_t j = 0; j < n; ++j) {
      const float is = c[static_cast<std::size_t>(i * n + j)], must = summed(a, b, i, j, 0, k, 0, false);
      only_last_block &= is == summed(a, b, i, j, std::max<std::int64_t>(last, 0), k, 0, false);
      if (is == must || !place.empty()) continue;
      place = sizes(m, k, n) + ": c(" + std::to_string(i) + ", " + std::to_string(j) + ") must be " +
              std::to_string(must) + ", but is " + std::to_string(is);
      if (i >= m / kTileRows * kTileRows)
        place += ". This is one of the last " + std::to_string(m % kTileRows) +
                 " rows, which do not fill a tile of " + std::to_string(kTileRows);
      else if (j >= n / kTileColumns * kTileColumns)
        place += ". This is one of the last " + std::to_string(n % kTileColumns) +
                 " columns, which do not fill a tile of " + std::to_string(kTileColumns);
    }
  if (!place.empty() && only_last_block)
    place +=
        ". c holds only the products of the last block of depths: the micro-kernel must begin with what c "
        "holds, not with zero";
  return place;
}

std::string product_at(std::int64_t m, std::int64_t k, std::int64_t n) {
  const std::vector<float> a = whole_numbers(m * k, 1), b = whole_numbers(k * n, 2);
  std::vector<float> c(static_cast<std::size_t>(m * n));
  fast_matmul(dense(a, m, k), dense(b, k, n), c.data(), n);
  return wrong_place(dense(a, m, k), dense(b, k, n), c);
}

TEST(Pack, KeepsColumnsTogether) {
  // Two panels of three rows and four columns; the elements are called 10 row + column.
  std::vector<float> x(24);
  for (int i = 0; i < 24; ++i) x[static_cast<std::size_t>(i)] = static_cast<float>(i / 4 * 10 + i % 4);
  const std::vector<float> expected{0,  10, 20, 1,  11, 21, 2,  12, 22, 3,  13, 23,  //
                                    30, 40, 50, 31, 41, 51, 32, 42, 52, 33, 43, 53};
  std::vector<float> panels(24, kNaN);
  pack(dense(x, 6, 4), 3, panels.data());
  ASSERT_NE(panels, x) << "the panels hold their rows one after another. A panel holds its columns: all of "
                          "column 0 first, then all of "
                          "column 1, as the micro-kernel reads them";
  ASSERT_EQ(panels, expected) << "a panel of 3 rows must hold its column 0 (3 numbers), then column 1, and "
                                 "so on; the next panel follows";

  std::vector<float> turned(24);
  for (std::size_t i = 0; i < 6; ++i)
    for (std::size_t j = 0; j < 4; ++j) turned[j * 6 + i] = x[i * 4 + j];
  std::fill(panels.begin(), panels.end(), kNaN);
  pack(dense(turned, 4, 6).transposed(), 3, panels.data());
  ASSERT_EQ(panels, expected)
      << "a transposed matrix gives the same panels: element (i, j) is at i row_stride + j column_stride";
}

TEST(Pack, FillsTheLastPanelWithZeros) {
  const std::vector<float> x{1, 2, 3, 4, 5, 6, 7, 8};  // 4 x 2, in panels of 3
  std::vector<float> panels(13, kNaN);
  pack(dense(x, 4, 2), 3, panels.data());
  const std::vector<float> expected{1, 3, 5, 2, 4, 6, 7, 0, 0, 8, 0, 0};
  for (std::size_t i = 0; i < 12; ++i) {
    ASSERT_FALSE(std::isnan(panels[i]))
        << "place " << i
        << " of the panels was not written: rows that the last panel lacks must become zeros, "
        << "for the memory may hold anything, a NaN too";
    ASSERT_EQ(panels[i], expected[i]) << "place " << i << " of the panels of a 4 x 2 matrix, 3 rows wide";
  }
  ASSERT_TRUE(std::isnan(panels[12])) << "pack must not write behind the last panel";
}

TEST(MicroKernel, AddsToWhatIsThere) {
  constexpr std::int64_t kDepth = 9;
  const std::vector<float> left = whole_numbers(kDepth * kTileRows, 3),
                           right = whole_numbers(kDepth * kTileColumns, 4);
  const std::vector<float> before = whole_numbers(kTileRows * kTileColumns, 5);
  std::vector<float> c = before;
  micro_kernel(kDepth, left.data(), right.data(), c.data(), kTileColumns);
  bool forgot = true;
  std::vector<float> expected = before;
  for (std::int64_t i = 0; i < kTileRows; ++i)
    for (std::int64_t j = 0; j < kTileColumns; ++j) {
      const auto at = static_cast<std::size_t>(i * kTileColumns + j);
      for (std::int64_t k = 0; k < kDepth; ++k)
        expected[at] += left[static_cast<std::size_t>(k * kTileRows + i)] *
                        right[static_cast<std::size_t>(k * kTileColumns + j)];
      forgot &= c[at] == expected[at] - before[at];
    }
  ASSERT_FALSE(forgot) << "c must keep what it held, and get the products added: the next block of depths "
                          "continues where this one ends";
  ASSERT_EQ(c, expected);
}

TEST(MicroKernel, WritesOnlyItsTile) {
  constexpr std::int64_t kStride = kTileColumns + 3;
  const std::vector<float> left(kTileRows, 1), right(kTileColumns, 1);
  std::vector<float> c((kTileRows + 1) * kStride, 77);
  micro_kernel(1, left.data(), right.data(), c.data(), kStride);
  for (std::int64_t i = 0; i <= kTileRows; ++i)
    for (std::int64_t j = 0; j < kStride; ++j) {
      const bool inside = i < kTileRows && j < kTileColumns;
      ASSERT_EQ(c[static_cast<std::size_t>(i * kStride + j)], inside ? 78 : 77)
          << "at (" << i << ", " << j << "), " << (inside ? "in" : "outside of")
          << " the tile: its rows are row_stride apart";
    }
}

TEST(FastMatmul, EverySizeAroundATile) {
  for (std::int64_t m = 1; m <= 40; ++m)
    for (std::int64_t n = 1; n <= 40; ++n)
      for (const std::int64_t k : {1, 2, 7}) ASSERT_EQ(product_at(m, k, n), "");
}

TEST(FastMatmul, LargerThanEveryBlock) {
  const std::int64_t m = kBlockRows, k = kBlockDepth, n = kBlockColumns;
  ASSERT_EQ(product_at(6, 2 * k + 1, 16), "") << "with more depths than a block has";
  ASSERT_EQ(product_at(2 * m + 5, 3, 16), "") << "with more rows than a block has";
  ASSERT_EQ(product_at(6, 3, 2 * n + 17), "") << "with more columns than a block has";
  ASSERT_EQ(product_at(m, k, n), "") << "with exactly the rows, depths and columns of a block";
  ASSERT_EQ(product_at(m + 1, k + 1, n + 1), "") << "with one more of each";
}

TEST(FastMatmul, ReadsAndWritesOnlyItsMatrices) {
  constexpr std::int64_t m = 8, k = 5, n = 19;
  const std::vector<float> a = whole_numbers(m * k, 6), b = whole_numbers(k * n, 7);
  for (const bool turn : {false, true}) {
    // Both lie in larger arrays of NaN, every second number of which is theirs; the right one by columns if
    // `turn`.
    std::vector<float> around_a(4 * (m + 2) * (k + 2), kNaN), around_b(4 * (k + 2) * (n + 2), kNaN);
    const Matrix in_a{around_a.data() + 11, m, k, 2 * (k + 2), 2};
    const Matrix in_b{around_b.data() + 11, k, n, turn ? 2 : 2 * (n + 2), turn ? 2 * (k + 2) : 2};
    for (std::int64_t i = 0; i < m; ++i)
      for (std::int64_t j = 0; j < k; ++j)
        const_cast<float*>(in_a.data)[i * in_a.row_stride + j * 2] = a[static_cast<std::size_t>(i * k + j)];
    for (std::int64_t i = 0; i < k; ++i)
      for (std::int64_t j = 0; j < n; ++j)
        const_cast<float*>(in_b.data)[i * in_b.row_stride + j * in_b.column_stride] =
            b[static_cast<std::size_t>(i * n + j)];
    constexpr std::int64_t stride = n + 5;
    std::vector<float> around_c((m + 2) * stride, 77), c;
    for (std::int64_t i = 0; i < m; ++i) std::fill_n(around_c.begin() + i * stride, n, 0.0f);
    fast_matmul(in_a, in_b, around_c.data(), stride);
    for (std::int64_t i = 0; i < m + 2; ++i)
      for (std::int64_t j = 0; j < stride; ++j) {
        const float is = around_c[static_cast<std::size_t>(i * stride + j)];
        if (i < m && j < n) {
          ASSERT_FALSE(std::isnan(is))
              << "c(" << i << ", " << j
              << ") is NaN: numbers beside the matrices were read; both strides of both must be used";
          c.push_back(is);
        } else {
          ASSERT_EQ(is, 77) << "row " << i << ", column " << j << " of the memory is not c's, which is " << m
                            << " x " << n
                            << ": of a tile at the edge only the part that c has may be written";
        }
      }
    ASSERT_EQ(wrong_place(dense(a, m, k), dense(b, k, n), c), "");
    // Infinity times a panel's zero is NaN: now it shows where a whole tile is written that adds zeros.
    for (std::int64_t i = 0; i < m; ++i)
      const_cast<float*>(in_a.data)[i * in_a.row_stride] = std::numeric_limits<float>::infinity();
    fast_matmul(in_a, in_b, around_c.data(), stride);
    for (std::int64_t i = 0; i < m + 2; ++i)
      for (std::int64_t j = i < m ? n : 0; j < stride; ++j)
        ASSERT_EQ(around_c[static_cast<std::size_t>(i * stride + j)], 77)
            << "row " << i << ", column " << j
            << " of the memory is not c's: a tile at the edge was written whole, which adds zeros, but not "
               "if a holds an infinity; nor may another thread's part of c be written at all";
  }
}

TEST(FastMatmul, AddsInTheOrderOfDepth) {
  constexpr std::int64_t m = 7, k = 2 * kBlockDepth + 88, n = 19;
  const Tensor a = random_tensor({m, k}, 8), b = random_tensor({k, n}, 9), before = random_tensor({m, n}, 10);
  const Matrix left{a.data(), m, k, k, 1}, right{b.data(), k, n, n, 1};
  const Tensor c = before.clone();
  fast_matmul(left, right, c.data(), n);
  bool in_order[2] = {true, true}, by_blocks[2] = {true, true};
  for (std::int64_t i = 0; i < m; ++i)
    for (std::int64_t j = 0; j < n; ++j)
      for (const bool fused : {false, true}) {
        const float is = c.at({i, j}), start = before.at({i, j});
        float blocks = start;
        for (std::int64_t begin = 0; begin < k; begin += kBlockDepth)
          blocks += summed(left, right, i, j, begin, std::min(begin + kBlockDepth, k), 0, fused);
        in_order[fused] &= is == summed(left, right, i, j, 0, k, start, fused);
        by_blocks[fused] &= is == blocks;
      }
  ASSERT_FALSE(by_blocks[0] || by_blocks[1])
      << "each block of depths was summed from zero, and its sum added to c: the bits then depend on "
         "kBlockDepth. Begin the sums of a tile with "
         "what c holds";
  ASSERT_TRUE(in_order[0] || in_order[1])
      << "the bits must be those of one sum for each element, which begins with c and adds the products in "
         "the order of k: no second sum that is "
         "added at the end, no other order";
}

TEST(FastMatmul, LeavesAnEmptyProductAlone) {
  const std::vector<float> a(100, kNaN);
  std::vector<float> c(30, 3);
  fast_matmul({a.data(), 5, 0, 0, 1}, {a.data(), 0, 6, 6, 1}, c.data(), 6);
  ASSERT_EQ(c, std::vector<float>(30, 3)) << "with k = 0 there is nothing to add";
  fast_matmul({a.data(), 0, 5, 5, 1}, {a.data(), 5, 6, 6, 1}, c.data(), 6);
  fast_matmul({a.data(), 5, 6, 6, 1}, {a.data(), 6, 0, 0, 1}, c.data(), 0);
  ASSERT_EQ(c, std::vector<float>(30, 3)) << "without rows or columns there is nothing to write";
}

int products = 0;
void counted_product(const Matrix& a, const Matrix& b, float* c, std::int64_t row_stride) {
  ++products;
  fast_matmul(a, b, c, row_stride);
}

TEST(Matmul, CallsTheProduct) {
  product = counted_product;
  const Tensor a({3, 5, 4}, whole_numbers(60, 11)), b({3, 4, 6}, whole_numbers(72, 12)), c = matmul(a, b);
  ASSERT_EQ(products, 3)
      << "matmul of [3, 5, 4] and [3, 4, 6] must call `product` once for each of the three pairs of matrices";
  for (std::int64_t i = 0; i < 3; ++i) {
    const std::vector<float> x = a.narrow(0, i, 1).values(), y = b.narrow(0, i, 1).values();
    ASSERT_EQ(wrong_place(dense(x, 5, 4), dense(y, 4, 6), c.narrow(0, i, 1).values()), "") << "pair " << i;
  }
  const Tensor left({7, 5}, whole_numbers(35, 13)), right({9, 5}, whole_numbers(45, 14));
  const std::vector<float> turned = right.transpose(0, 1).values();
  ASSERT_EQ(wrong_place(dense(left.values(), 7, 5), dense(turned, 5, 9),
                        matmul(left, right.transpose(0, 1)).values()),
            "")
      << "with a transposed right matrix: pass its strides on";
  ASSERT_EQ(products, 4);
}

struct Case {
  std::int64_t n, c, h, w, k, r, stride, padding;
};
const Case kCases[] = {
    {2, 3, 7, 5, 4, 3, 1, 1}, {1, 2, 8, 9, 3, 3, 2, 0}, {3, 1, 4, 4, 2, 1, 1, 0}, {1, 2, 5, 6, 17, 5, 1, 2}};

// Calls f(element of x, of weight, of y) for each product of the definition.
template <class F> void each_product(const Case& of, std::int64_t oh, std::int64_t ow, F f) {
  for (std::int64_t n = 0; n < of.n; ++n)
    for (std::int64_t k = 0; k < of.k; ++k)
      for (std::int64_t y = 0; y < oh; ++y)
        for (std::int64_t x = 0; x < ow; ++x)
          for (std::int64_t c = 0; c < of.c; ++c)
            for (std::int64_t r = 0; r < of.r; ++r)
              for (std::int64_t s = 0; s < of.r; ++s) {
                const std::int64_t row = y * of.stride + r - of.padding,
                                   column = x * of.stride + s - of.padding;
                if (row < 0 || row >= of.h || column < 0 || column >= of.w) continue;
                f(((n * of.c + c) * of.h + row) * of.w + column, ((k * of.c + c) * of.r + r) * of.r + s,
                  ((n * of.k + k) * oh + y) * ow + x);
              }
}

TEST(Conv, EqualsTheDefinition) {
  const Windows windows{1, 2, 3, 2, 1, 0};
  const std::vector<float> image{1, 2, 3, 4, 5, 6};
  std::vector<float> patches(8, kNaN);
  image_to_columns(windows, image.data(), patches.data());
  ASSERT_EQ(patches, (std::vector<float>{1, 2, 2, 3, 4, 5, 5, 6}))
      << "the image 1 2 3 / 4 5 6 has two patches of 2 x 2, which are the columns of the matrix: each row is "
         "one place (c, r, s) of the filter";
  const std::vector<float> pixel{5};
  std::vector<float> around(9, kNaN);
  image_to_columns({1, 1, 1, 3, 1, 1}, pixel.data(), around.data());
  ASSERT_EQ(around, (std::vector<float>{0, 0, 0, 0, 5, 0, 0, 0, 0}))
      << "the padding of one pixel: image_to_columns must write the zeros, for the memory may hold anything";
  for (const Case& of : kCases) {
    const Tensor x = random_tensor({of.n, of.c, of.h, of.w}, 1),
                 w = random_tensor({of.k, of.c, of.r, of.r}, 2);
    const Tensor y = conv2d(Variable(x), Variable(w), of.stride, of.padding).value();
    const std::int64_t oh = (of.h + 2 * of.padding - of.r) / of.stride + 1,
                       ow = (of.w + 2 * of.padding - of.r) / of.stride + 1;
    ASSERT_EQ(y.shape(), (Shape{of.n, of.k, oh, ow}));
    const Tensor view = x.transpose(2, 3).clone().transpose(2, 3);
    ASSERT_EQ(conv2d(Variable(view), Variable(w), of.stride, of.padding).value().values(), y.values())
        << "images that lie in memory by columns must give the same: follow the strides, or make a copy";
    std::vector<double> expected(static_cast<std::size_t>(y.numel()));
    each_product(of, oh, ow, [&](std::int64_t i, std::int64_t j, std::int64_t to) {
      expected[static_cast<std::size_t>(to)] += double{x.data()[i]} * w.data()[j];
    });
    const std::vector<float> values = y.values();
    for (std::size_t i = 0; i < values.size(); ++i)
      ASSERT_NEAR(values[i], expected[i], 1e-4) << "element " << i << " of y, with kernel " << of.r
                                                << ", stride " << of.stride << ", padding " << of.padding;
  }
}

TEST(Conv, GradientsEqualTheDefinition) {
  std::vector<float> image(6, 100);
  columns_to_image({1, 2, 3, 2, 1, 0}, std::vector<float>(8, 1).data(), image.data());
  EXPECT_EQ(image, (std::vector<float>{101, 102, 101, 101, 102, 101}))
      << "columns_to_image adds to what the image holds, once for each patch that a pixel is in";
  for (const Case& of : kCases) {
    const Variable x(random_tensor({of.n, of.c, of.h, of.w}, 3), true),
        w(random_tensor({of.k, of.c, of.r, of.r}, 4), true);
    const Variable y = conv2d(x, w, of.stride, of.padding);
    const Tensor dy = random_tensor(y.shape(), 5);
    backward(sum_all(mul(y, Variable(dy))));
    std::vector<double> dx(static_cast<std::size_t>(x.value().numel())),
        dw(static_cast<std::size_t>(w.value().numel()));
    each_product(of, y.shape()[2], y.shape()[3], [&](std::int64_t i, std::int64_t j, std::int64_t to) {
      dx[static_cast<std::size_t>(i)] += double{dy.data()[to]} * w.value().data()[j];
      dw[static_cast<std::size_t>(j)] += double{dy.data()[to]} * x.value().data()[i];
    });
    ASSERT_EQ(x.grad().shape(), x.shape());
    ASSERT_EQ(w.grad().shape(), w.shape());
    const std::vector<float> of_x = x.grad().values(), of_w = w.grad().values();
    for (std::size_t i = 0; i < dx.size(); ++i)
      ASSERT_NEAR(of_x[i], dx[i], 1e-3) << "element " << i << " of dL/dx: a pixel is in as many as "
                                        << of.r * of.r << " patches, and gets the sum of their gradients";
    for (std::size_t i = 0; i < dw.size(); ++i)
      ASSERT_NEAR(of_w[i], dw[i], 1e-3)
          << "element " << i << " of dL/dweight: the sum over all " << of.n << " images";

    const auto gradient_of_x = [&](const Variable& loss) {
      x.clear_grad();
      backward(loss);
      return x.grad().values();
    };
    const Tensor ones = map(y.value(), [](float) { return 1.0f; });
    ASSERT_EQ(gradient_of_x(sum_all(conv2d(x, w, of.stride, of.padding))),
              gradient_of_x(sum_all(mul(conv2d(x, w, of.stride, of.padding), Variable(ones)))))
        << "the gradient that comes from a sum is one number in memory, expanded: follow its strides, or "
           "make a copy";
  }
}

TEST(Conv, CallsTheProductAndRefusesWhatDoesNotFit) {
  product = counted_product;
  const Variable x(random_tensor({2, 3, 5, 4}, 7), true), w(random_tensor({4, 3, 3, 3}, 8), true);
  products = 0;
  const Variable y = conv2d(x, w, 1, 1);
  EXPECT_EQ(products, 2)
      << "conv2d must call `product` for each of two images: the next stage puts a GPU's there";
  backward(sum_all(y));
  EXPECT_EQ(products, 6) << "backwards there are two products for each image, for dL/dweight and for dL/dP";
  EXPECT_THROW(conv2d(x, Variable(Tensor({4, 2, 3, 3})), 1, 1), std::invalid_argument)
      << "filters of 2 channels over images of 3: memory behind the filters would be read";
  EXPECT_THROW(conv2d(x, Variable(Tensor({4, 3, 5, 5})), 1, 0), std::invalid_argument)
      << "a filter of 5 x 5 does not fit into 5 x 4 pixels";
  EXPECT_THROW(conv2d(x, Variable(Tensor({4, 3, 3, 2})), 1, 1), std::invalid_argument)
      << "filters are square";
  EXPECT_THROW(conv2d(x, w, 0, 1), std::invalid_argument) << "with a stride of 0 it would stand still";
  EXPECT_THROW(conv2d(x, w, 1, -1), std::invalid_argument) << "a padding of -1 would cut the image";
}

TEST(Conv, HoldsThePatchesOfOneImage) {
  Conv2d layer(4, 4, 3, {.stride = 1, .padding = 1}, 1);
  const Variable x(random_tensor({64, 4, 16, 16}, 6), true);
  largest_allocation = 0;
  backward(sum_all(layer.forward(x)));
  ASSERT_LT(largest_allocation, 1u << 20) << "64 images of 4 x 16 x 16 are 262,144 bytes, their patches "
                                             "2,359,296, those of one image 36,864. Somewhere "
                                          << largest_allocation.load()
                                          << " bytes were asked for at once: the patches of all images must "
                                             "not be stored together, and Conv2d::forward must call conv2d";
}

}  // namespace
