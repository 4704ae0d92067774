#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include <gtest/gtest.h>

#include "gradcheck.h"

namespace {

using Numbers = std::vector<double>;

double cubes(const Numbers& x) {
  double sum = 0;
  for (const double value : x) sum += value * value * value;
  return sum;
}
Numbers of_cubes(const Numbers& x) {
  Numbers result;
  for (const double value : x) result.push_back(3 * value * value);
  return result;
}

TEST(Gradcheck, AcceptsRightGradients) {
  Numbers x{0.5, -1.25, 2, 0};
  EXPECT_EQ(first_wrong(cubes, x, of_cubes(x), 1e-8), -1)
      << "a right gradient was refused: one-sided differences err by about h, or h is so small that the "
         "rounding of f shows";
  Numbers large{3e4, -2e4};
  EXPECT_EQ(first_wrong(cubes, large, of_cubes(large), 1e-8), -1)
      << "a right gradient was refused at large x: h must grow with |x|";
  Numbers none;
  EXPECT_EQ(first_wrong(cubes, none, {}, 1e-8), -1) << "no element is wrong where there is none";
}

TEST(Gradcheck, NamesAWrongElement) {
  Numbers x{0.5, -1.25, 2};
  Numbers gradient = of_cubes(x);
  gradient[1] = -gradient[1];
  EXPECT_EQ(first_wrong(cubes, x, gradient, 1e-8), 1) << "the sign of element 1 is wrong";
}

TEST(Gradcheck, NoticesSmallErrors) {
  Numbers x{0.5, -1.25, 2};
  Numbers gradient = of_cubes(x);
  gradient[2] *= 1 + 1e-6;
  EXPECT_EQ(first_wrong(cubes, x, gradient, 1e-8), 2)
      << "an error of a millionth at a tolerance of a hundredth of that";
  Numbers zero = {0.5};
  EXPECT_EQ(first_wrong([](const Numbers&) { return 1.0; }, zero, {1e-6}, 1e-8), 0)
      << "the derivative of a constant is 0: an error there must count, too";
}

TEST(Gradcheck, LeavesTheInputAsItWas) {
  Numbers original;
  for (int i = 1; i <= 20; ++i) original.insert(original.end(), {0.1 * i, 1.1e-9 * i});  // some far below h
  Numbers x = original, seen;
  const auto remembers = [&](const Numbers& at) {
    for (std::size_t i = 0; i < at.size(); ++i)
      if (std::fabs(at[i] - original[i]) > 1e-3) seen.push_back(at[i]);
    return cubes(at);
  };
  first_wrong(remembers, x, of_cubes(original), 1e-6);
  EXPECT_TRUE(seen.empty()) << "f was asked far from x";
  for (std::size_t i = 0; i < x.size(); ++i)
    EXPECT_EQ(x[i], original[i]) << "x + h - h is not x: restore the saved number (element " << i << ")";
  Numbers moved = original, gradient = of_cubes(original);
  gradient[0] += 1;
  first_wrong(cubes, moved, gradient, 1e-6);
  EXPECT_EQ(moved, original) << "x must also be restored when a wrong element is found";
}

TEST(Gradcheck, NoticesNan) {
  Numbers x{0.5, 1};
  Numbers gradient = of_cubes(x);
  gradient[1] = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(first_wrong(cubes, x, gradient, 1e-8), 1)
      << "no comparison with NaN is true: ask whether the error is small";
}

}  // namespace
