#pragma once

#include <string>
#include <vector>

#include "matrix.h"

/// u with singular values near 1, by five iterations of Newton and Schulz.
inline Matrix orthogonalised(const Matrix& u) {
  return u;
}

/// The factor of the learning rate for a matrix.
inline double scale_by_shape(int rows, int columns) {
  (void)rows, (void)columns;
  return 1;
}

/// One step of the weight w with the gradient g. `average` is that of the gradients, at first zeros.
inline void muon_step(Matrix& w, Matrix& average, const Matrix& g, double rate, double mu) {
  average = sum(mu, average, 1 - mu, g);
  w = sum(1, w, -rate, average);
}

struct Parameter {
  std::string name;
  std::vector<int> shape;
  bool decay;  // whether weight decay applies: to the weights of linear layers and convolutions alone
};

/// Whether Muon updates a parameter, and as a matrix of which size. 0 x 0: the other optimizer does.
struct Size {
  int rows, columns;
};
inline Size size_for_muon(const Parameter& parameter) {
  return {parameter.shape.front(), parameter.shape.back()};
}
