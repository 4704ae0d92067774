#pragma once

#include <stdexcept>
#include <string>
#include <vector>

/// A matrix of zeros, by rows.
struct Matrix {
  Matrix(int rows_, int columns_)
      : rows(rows_), columns(columns_), values(static_cast<std::size_t>(rows_ * columns_)) {}

  double& operator()(int i, int j) { return values[static_cast<std::size_t>(i * columns + j)]; }
  double operator()(int i, int j) const { return values[static_cast<std::size_t>(i * columns + j)]; }

  int rows, columns;
  std::vector<double> values;
};

/// Of all products so far.
inline long multiply_adds = 0;

inline std::string size_of(const Matrix& a) {
  return std::to_string(a.rows) + " x " + std::to_string(a.columns);
}

/// a b: one multiply-add for each row of a, column of b, and depth.
inline Matrix product(const Matrix& a, const Matrix& b) {
  if (a.columns != b.rows)
    throw std::invalid_argument("product: there is none of " + size_of(a) + " and " + size_of(b));
  Matrix y(a.rows, b.columns);
  for (int i = 0; i < a.rows; ++i) {
    for (int k = 0; k < a.columns; ++k) {
      for (int j = 0; j < b.columns; ++j) y(i, j) += a(i, k) * b(k, j);
    }
  }
  multiply_adds += static_cast<long>(a.rows) * a.columns * b.columns;
  return y;
}

inline Matrix transposed(const Matrix& a) {
  Matrix y(a.columns, a.rows);
  for (int i = 0; i < a.rows; ++i) {
    for (int j = 0; j < a.columns; ++j) y(j, i) = a(i, j);
  }
  return y;
}

/// p a + q b.
inline Matrix sum(double p, const Matrix& a, double q, const Matrix& b) {
  if (a.rows != b.rows || a.columns != b.columns)
    throw std::invalid_argument("sum: " + size_of(a) + " and " + size_of(b) + " are not of one size");
  Matrix y(a.rows, a.columns);
  for (std::size_t i = 0; i < y.values.size(); ++i) y.values[i] = p * a.values[i] + q * b.values[i];
  return y;
}
