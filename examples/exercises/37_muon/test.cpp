#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "matrix.h"
#include "muon.h"

namespace {

// Rows i and i + 1 turned into one another, for all i: an orthogonal matrix without zeros where it matters.
Matrix rotation(int size, double angle) {
  Matrix all(size, size);
  for (int i = 0; i < size; ++i) all(i, i) = 1;
  for (int i = 0; i + 1 < size; ++i) {
    for (int j = 0; j < size; ++j) {
      const double up = all(i, j), down = all(i + 1, j), turn = angle + i;
      all(i, j) = std::cos(turn) * up - std::sin(turn) * down;
      all(i + 1, j) = std::sin(turn) * up + std::cos(turn) * down;
    }
  }
  return all;
}

// A matrix of that size with those singular values.
Matrix with(const std::vector<double>& singular, int rows, int columns) {
  Matrix s(rows, columns);
  for (std::size_t i = 0; i < singular.size(); ++i) s(static_cast<int>(i), static_cast<int>(i)) = singular[i];
  return product(product(rotation(rows, 0.3), s), rotation(columns, 1.1));
}

double norm_of(const std::vector<double>& values) {
  double squares = 0;
  for (const double value : values) squares += value * value;
  return std::sqrt(squares);
}

double largest_element(const Matrix& u) {
  double largest = 0;
  for (const double value : u.values) largest = std::max(largest, std::fabs(value));
  return largest;
}

// What the iteration makes of singular values that were divided by `norm`: no matrix is needed for that.
std::vector<double> iterated(std::vector<double> singular, double norm, int times) {
  for (double& s : singular) {
    s /= norm;
    for (int i = 0; i < times; ++i) s = 3.4445 * s - 4.7750 * std::pow(s, 3) + 2.0315 * std::pow(s, 5);
  }
  return singular;
}

double distance(const Matrix& a, const Matrix& b) {
  double most = 0;
  for (std::size_t i = 0; i < a.values.size(); ++i) {
    if (!std::isfinite(a.values[i])) return INFINITY;
    most = std::max(most, std::fabs(a.values[i] - b.values[i]));
  }
  return most;
}

// What is wrong with the result for a matrix with those singular values; empty if nothing is.
std::string wrong(const std::vector<double>& singular, int rows, int columns) {
  const Matrix u = with(singular, rows, columns), got = orthogonalised(u);
  const std::string here = "a " + size_of(u) + " matrix: ";
  if (got.rows != rows || got.columns != columns)
    return here + "the result is " + size_of(got) + ": what was transposed before must be transposed back";
  const auto is = [&](double norm, int times) {
    return distance(got, with(iterated(singular, norm, times), rows, columns)) < 1e-9;
  };
  const double norm = norm_of(singular), largest = largest_element(u);
  if (is(norm, 5)) return "";
  if (distance(got, u) == 0) return here + "u came back as it was";
  if (is(largest, 5))
    return here +
           "u was divided by its largest element, which does not bound singular values: divide by the "
           "norm, the root of the sum of squares";
  if (is(norm + 1e-7, 5)) return here + "u was divided by |u| + 1e-7, and not by max(|u|, 1e-7)";
  for (int times = 0; times <= 12; ++times) {
    if (is(norm, times))
      return here + "this is the result of " + std::to_string(times) + " iterations, and not of 5";
  }
  if (distance(got, u) > 1e3)
    return here +
           "the numbers grow without limit: a singular value was above 1.27. Divide by the norm, the root of "
           "the sum of squares, before the first iteration; the largest element is less than that";
  return here +
         "the singular values must become those of a s + b s^3 + c s^5, applied five times to s / |u|; "
         "U and V must stay";
}

TEST(Muon, BringsSingularValuesNearOne) {
  ASSERT_EQ(wrong({3, 2}, 2, 2), "");
  ASSERT_EQ(wrong({5, 4, 3, 0.5}, 4, 4), "");
  ASSERT_EQ(wrong({7, 1, 0.2}, 3, 8), "");
  ASSERT_EQ(wrong({7, 1, 0.2}, 8, 3), "");
  ASSERT_EQ(wrong({6}, 1, 5), "");
  ASSERT_EQ(wrong({2e-3, 1e-3}, 2, 3), "") << "(a small gradient moves as far as a large one)";
  Matrix ones(6, 6);
  std::fill(ones.values.begin(), ones.values.end(), 1.0);
  const double one = iterated({1}, 1, 5)[0] / 6;  // its only singular value is 6, its norm, too
  const Matrix got = orthogonalised(ones);
  for (const double value : got.values)
    ASSERT_NEAR(value, one, 1e-9)
        << "a 6 x 6 matrix of ones: its largest element is 1, but its largest singular value is 6, like its "
           "norm. Divide by the norm, the root of the sum of squares";
}

TEST(Muon, TakesAZeroGradient) {
  const Matrix zeros(3, 2);
  const Matrix got = orthogonalised(zeros);
  for (const double value : got.values)
    ASSERT_EQ(value, 0)
        << "a layer without a gradient must not move: its norm is 0, so u is divided by max(|u|, "
           "1e-7) and not by |u|";
  const Matrix u = with({3}, 2, 2);
  ASSERT_NE(orthogonalised(u).values, u.values) << "u came back as it was";
  ASSERT_NE(orthogonalised(u).values, Matrix(2, 2).values) << "a layer with a gradient must move";
}

TEST(Muon, WorksOnTheShorterSide) {
  for (const auto& [rows, columns] :
       {std::array{2, 16}, std::array{16, 2}, std::array{5, 4}, std::array{7, 7}}) {
    std::vector<double> singular(static_cast<std::size_t>(std::min(rows, columns)), 0.5);
    singular[0] = 2;
    const Matrix u = with(singular, rows, columns);
    multiply_adds = 0;
    orthogonalised(u);
    const long n = std::min(rows, columns), m = std::max(rows, columns),
               most = 5 * (2 * n * n * m + n * n * n);
    const std::string here =
        size_of(u) + ": five iterations took " + std::to_string(multiply_adds) + " multiply-adds. ";
    ASSERT_GT(multiply_adds, 0) << here << "Write the iteration first";
    ASSERT_TRUE(rows <= columns || multiply_adds < 5 * (2 * m * m * n + m * m * m))
        << here << "For a matrix taller than wide, X X^T has the longer side. The result is right, but "
        << most << " are enough: iterate on the transpose, whose X X^T has the shorter side";
    ASSERT_LE(multiply_adds, most) << here << most
                                   << " are enough: A = X X^T, then b A + c A^2, then its product with X";
  }
}

Matrix diagonal(double first, double second) {
  Matrix a(2, 2);
  a(0, 0) = first, a(1, 1) = second;
  return a;
}

// The two elements of a diagonal step, by the polynomial alone.
std::vector<double> step_of(double first, double second) {
  return iterated({first, second}, norm_of({first, second}), 5);
}

TEST(Muon, AveragesFirst) {
  Matrix w(2, 2), average(2, 2);
  const std::vector<double> alone = step_of(4, 1);
  muon_step(w, average, diagonal(4, 1), 1, 0.9);
  const double moved = -w(0, 0);
  ASSERT_FALSE(moved > 0.05 && moved < 0.25)
      << "the first step is " << moved
      << " long where a singular value near 1 is expected: the average was taken of orthogonalised matrices. "
         "Average the gradients first, then orthogonalise";
  ASSERT_NEAR(moved, alone[0], 1e-9)
      << "in the first step u is a multiple of g, and its factor must not matter: orthogonalise u";
  ASSERT_NEAR(-w(1, 1), alone[1], 1e-9) << "the first step along the small singular value";
  muon_step(w, average, diagonal(4, 1), 1, 0.9);
  ASSERT_LT(-w(0, 0) - moved, 1.5 * moved)
      << "the second step along the same gradient is longer than the first: momentum was added to "
         "orthogonalised matrices. Average the gradients first, then orthogonalise";
  ASSERT_NEAR(-w(0, 0), 2 * alone[0], 1e-9) << "the second step along the same gradient";

  Matrix v(2, 2), second(2, 2);
  muon_step(v, second, diagonal(4, 1), 1, 0.9);
  muon_step(v, second, diagonal(1, -3), 1, 0.9);
  const auto after = [&](double of_first, double of_second) {
    const std::vector<double> step = step_of(4 * of_first + of_second, of_first - 3 * of_second);
    return -alone[0] - step[0];
  };
  ASSERT_GT(std::fabs(v(0, 0) - after(0.09, 0.1)), 1e-9)
      << "the average itself was orthogonalised: Nesterov looks ahead, u = g + mu (average - g)";
  ASSERT_GT(std::fabs(v(0, 0) - after(0, 1)), 1e-9) << "the step forgot the gradient before";
  ASSERT_NEAR(v(0, 0), after(0.081, 0.19), 1e-9)
      << "after gradients g1 and g2, with mu = 0.9, u is 0.081 g1 + 0.19 g2";
}

TEST(Muon, ScalesByShape) {
  ASSERT_NE(scale_by_shape(3, 2), 1) << "3 / 2 is 1 in whole numbers: divide as double";
  ASSERT_NEAR(scale_by_shape(3, 2), std::sqrt(1.5), 1e-12) << "sqrt(3 / 2)";
  ASSERT_NEAR(scale_by_shape(16, 4), 2, 1e-12) << "sqrt(16 / 4)";
  ASSERT_NEAR(scale_by_shape(4, 16), 1, 1e-12) << "a wide matrix is not scaled down: max(1, rows / columns)";
  Matrix w(16, 4), average(16, 4);
  muon_step(w, average, with({3, 3, 3, 3}, 16, 4), 0.5, 0.9);
  ASSERT_NEAR(norm_of(w.values), 0.5 * 2 * norm_of(iterated({3, 3, 3, 3}, 6, 5)), 1e-9)
      << "a step of 16 x 4 at rate 0.5: rate * scale * orthogonalised(u)";
}

std::string sizes(const Parameter& parameter) {
  const Size size = size_for_muon(parameter);
  return parameter.name + " " + std::to_string(size.rows) + " x " + std::to_string(size.columns);
}

TEST(Muon, TakesTheWeightsOfLayers) {
  EXPECT_EQ(sizes({"head.weight", {10, 64}, true}), "head.weight 10 x 64");
  EXPECT_EQ(sizes({"conv.weight", {32, 3, 5, 16}, true}), "conv.weight 32 x 240")
      << "a convolution has a row for each output: [K, R, S, C] is K x R S C";
  EXPECT_EQ(sizes({"head.bias", {10}, false}), "head.bias 0 x 0") << "a bias is no matrix";
  EXPECT_EQ(sizes({"scale", {64}, true}), "scale 0 x 0")
      << "one dimension is no matrix, with decay or without";
  EXPECT_EQ(sizes({"position", {65, 192}, false}), "position 0 x 0")
      << "a table of embeddings has two dimensions, but it multiplies nothing: each row is a vector of its "
         "own";
}

}  // namespace
