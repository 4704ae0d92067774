#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "machine.h"
#include "product.h"

namespace {

std::vector<float> numbers(int count, int seed) {
  std::vector<float> all(static_cast<std::size_t>(count));
  for (int i = 0; i < count; ++i)
    all[static_cast<std::size_t>(i)] = static_cast<float>((i * 7 + seed * 13) % 11 - 5);
  return all;
}

// Small whole numbers, so every order of a sum gives the same bits.
struct Result {
  std::vector<float> got, expected;
  Counts counted;

  // The first wrong element, in words; empty if there is none.
  std::string wrong(int columns) const {
    for (std::size_t i = 0; i < got.size(); ++i) {
      if (got[i] != expected[i])
        return "y[" + std::to_string(static_cast<int>(i) / columns) + "][" +
               std::to_string(static_cast<int>(i) % columns) + "] is " + std::to_string(got[i]) + ", not " +
               std::to_string(expected[i]);
    }
    return "";
  }
};

Result run(int rows, int depth, int columns) {
  const std::vector<float> a = numbers(rows * depth, 1), b = numbers(depth * columns, 2);
  Result result;
  result.got.assign(static_cast<std::size_t>(rows * columns), -999);
  result.expected.assign(static_cast<std::size_t>(rows * columns), 0);
  for (int i = 0; i < rows; ++i) {
    for (int j = 0; j < columns; ++j) {
      float& sum = result.expected[static_cast<std::size_t>(i * columns + j)];
      for (int k = 0; k < depth; ++k)
        sum += a[static_cast<std::size_t>(i * depth + k)] * b[static_cast<std::size_t>(k * columns + j)];
    }
  }
  counts = {};
  multiply(a.data(), b.data(), result.got.data(), rows, depth, columns);
  result.counted = counts;
  return result;
}

TEST(Product, IsRight) {
  EXPECT_EQ(run(96, 10, 96).wrong(96), "") << "96 x 10 times 10 x 96";
  EXPECT_EQ(run(192, 3, 96).wrong(96), "") << "192 x 3 times 3 x 96";
}

TEST(Product, EdgesAreRight) {
  for (const int columns : {8, 16, 24, 32, 40, 104}) {
    for (int rows = 1; rows <= 13; ++rows) {
      const Result result = run(rows, 5, columns);
      ASSERT_EQ(result.wrong(columns), "") << rows << " rows, " << columns
                                           << " columns: what is left over beside whole blocks must be "
                                              "computed, too, at the bottom and at the right";
    }
  }
  EXPECT_EQ(run(7, 1, 8).wrong(8), "") << "a depth of 1";
}

TEST(Product, AddsInTheOrderOfK) {
  std::vector<float> a(96 * 3), b(3 * 96, 1), y(96 * 96);
  for (std::size_t i = 0; i < a.size(); i += 3) a[i] = 1e8f, a[i + 1] = 1, a[i + 2] = -1e8f;
  multiply(a.data(), b.data(), y.data(), 96, 3, 96);
  for (const float sum : y)
    ASSERT_EQ(sum, 0)
        << "(1e8 + 1) - 1e8 is 0 in float: add k = 0, 1, 2, ... into one sum, and not in another order";
}

TEST(Product, FitsIntoSixteenRegisters) {
  const Result result = run(96, 20, 96);
  EXPECT_LE(result.counted.most_registers, 16)
      << "the machine has 16 registers, but " << result.counted.most_registers
      << " are alive at the same time: the rest would be spilled. Count the sums, and what you hold of a and "
         "b beside them";
  EXPECT_GE(result.counted.most_registers, 3) << "a multiply-add needs a sum and two factors";
  EXPECT_LE(run(13, 5, 40).counted.most_registers, 16) << "at the edges, too";
}

TEST(Product, LoadsLessThanItComputes) {
  const Result result = run(96, 50, 96);
  const long needed = 96L * 50 * 96 / 8;
  EXPECT_EQ(result.counted.multiply_adds, needed)
      << "a 96 x 50 x 96 product has " << needed << " vector multiply-adds";
  const double loads = static_cast<double>(result.counted.loads) / static_cast<double>(needed);
  const double stores = static_cast<double>(result.counted.stores) / (96 * 96 / 8);
  EXPECT_LT(stores, 1.01) << "each vector of y is stored " << stores
                          << " times: keep its sums in registers for all k, and store them once";
  ASSERT_LT(loads, 1.3) << loads
                        << " loads for a multiply-add: load each vector of b once for all rows of the block, "
                           "and not again for each row";
  EXPECT_LE(loads, 0.75)
      << loads
      << " loads for a multiply-add: a block of r rows and c vectors needs (r + c) / (r c); make both larger";
}

}  // namespace
