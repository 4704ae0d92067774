#include "nn/whitening.h"

#include <algorithm>
#include <cmath>

#include <Eigen/Dense>

#include "kernels/copy.h"
#include "kernels/cpu/context.h"

namespace athanor::nn {
namespace {

Eigen::MatrixXd patch_covariance(const Tensor& images, std::int64_t kernel) {
  const std::int64_t height = images.dim(1), width = images.dim(2), channels = images.dim(3);
  const std::int64_t row = kernel * channels, size = kernel * row;
  const std::int64_t down = height - kernel + 1, across = width - kernel + 1;
  Eigen::VectorXd sum = Eigen::VectorXd::Zero(size);
  Eigen::MatrixXd products = Eigen::MatrixXd::Zero(size, size);
  Eigen::MatrixXd patches(size, down * across);  // of one image, one per column
  const float* pixels = images.data<float>();
  for (std::int64_t n = 0; n < images.dim(0); ++n) {
    for (std::int64_t h = 0; h < down; ++h) {
      for (std::int64_t w = 0; w < across; ++w) {
        for (std::int64_t r = 0; r < kernel; ++r) {
          const float* from = pixels + ((n * height + h + r) * width + w) * channels;
          for (std::int64_t i = 0; i < row; ++i) patches(r * row + i, h * across + w) = from[i];
        }
      }
    }
    sum += patches.rowwise().sum();
    products.selfadjointView<Eigen::Lower>().rankUpdate(patches);
  }
  const auto count = static_cast<double>(images.dim(0) * patches.cols());
  const Eigen::VectorXd mean = sum / count;
  const Eigen::MatrixXd full = products.selfadjointView<Eigen::Lower>();
  return full / count - mean * mean.transpose();
}

}  // namespace

Tensor whitening_filters(const Tensor& images, std::int64_t kernel, double eps) {
  ATH_CHECK(images.rank() == 4 && is_floating(images.dtype()) && kernel > 0 && images.dim(1) >= kernel &&
                images.dim(2) >= kernel && images.dim(0) > 0 && images.dim(3) > 0,
            "whitening_filters: images must be floating [N, H, W, C] with patches of {} x {}, but got {} {}",
            kernel, kernel, images.shape(), images.dtype());
  ATH_CHECK(eps > 0, "whitening_filters: eps must be > 0, but got {}", eps);
  const Tensor host = Tensor::empty(images.shape());
  kernels::copy(cpu_context(), images.detach().to(kCpu), host);

  const Eigen::MatrixXd covariance = patch_covariance(host, kernel);
  ATH_CHECK(covariance.allFinite(), "whitening_filters: images must be finite");
  const Eigen::SelfAdjointEigenSolver<Eigen::MatrixXd> solver(covariance);

  const std::int64_t size = covariance.rows();
  const Tensor filters = Tensor::empty({2 * size, kernel, kernel, images.dim(3)});
  float* out = filters.data<float>();
  for (std::int64_t k = 0; k < size; ++k) {
    const std::int64_t from = size - 1 - k;  // the solver's eigenvalues ascend
    const Eigen::VectorXd v = solver.eigenvectors().col(from);
    Eigen::Index largest = 0;
    v.cwiseAbs().maxCoeff(&largest);
    const double sign = v[largest] < 0 ? -1 : 1;
    const double scale = sign / std::sqrt(std::max(solver.eigenvalues()[from], 0.0) + eps);
    for (std::int64_t i = 0; i < size; ++i) {
      out[k * size + i] = static_cast<float>(v[i] * scale);
      out[(size + k) * size + i] = -out[k * size + i];
    }
  }
  return filters;
}

}  // namespace athanor::nn
