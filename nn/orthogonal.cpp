#include <algorithm>

#include <Eigen/Dense>

#include "nn/detail/fill.h"
#include "nn/init.h"

namespace athanor::nn::init {

void orthogonal(const Tensor& w, RandomKey key, double gain) {
  ATH_CHECK(w.rank() >= 2, "orthogonal: weight must have a rank of at least 2, but has shape {}", w.shape());
  if (w.numel() == 0) return;
  const std::int64_t rows = w.shape()[0], columns = w.numel() / rows;
  const std::int64_t tall = std::max(rows, columns), narrow = std::min(rows, columns);

  const Tensor drawn = Tensor::empty({narrow, tall}, {DType::f64, kCpu});
  normal(drawn, key, 0, 1);
  const Eigen::Map<const Eigen::MatrixXd> gaussian(drawn.data<double>(), tall, narrow);
  Eigen::setCpuCacheSizes(32 << 10, 512 << 10, 4 << 20);  // else the order of sums would depend on the CPU
  const Eigen::HouseholderQR<Eigen::MatrixXd> qr(gaussian);
  Eigen::MatrixXd q = qr.householderQ() * Eigen::MatrixXd::Identity(tall, narrow);
  // Without this, the algorithm determines the signs, which would not be uniform.
  for (std::int64_t j = 0; j < narrow; ++j) {
    if (qr.matrixQR()(j, j) < 0) q.col(j) = -q.col(j);
  }
  fill("orthogonal", w, [&](std::uint64_t i) {
    const auto row = static_cast<std::int64_t>(i) / columns, column = static_cast<std::int64_t>(i) % columns;
    return gain * (rows >= columns ? q(row, column) : q(column, row));
  });
}

}  // namespace athanor::nn::init
