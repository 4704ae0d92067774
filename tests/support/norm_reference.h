#pragma once

#include "tests/support/ops.h"
#include "tests/support/waves.h"

namespace athanor::test {

/// gamma and beta of so many channels, which need gradients.
struct NormParameters {
  Tensor gamma, beta;

  NormParameters(std::int64_t channels, DType dtype)
      : gamma(require_grad(cast_to(wave({channels}, 1.5, 2), dtype))),
        beta(require_grad(cast_to(wave({channels}, 0, 3), dtype))) {}
};

/// y and all gradients by the formulas, in double, a group at a time. Of a layer norm, rows [N, C]
/// are one group each.
struct NormReference {
  std::vector<double> y, dx, dgamma, dbeta;

  NormReference(const Tensor& x, std::int64_t groups, const Tensor& gamma, const Tensor& beta,
                const Tensor& dy, double eps) {
    const std::vector<double> in = x.to_vector(), weight = gamma.to_vector(), bias = beta.to_vector(),
                              gradient = dy.to_vector();
    const auto channels = weight.size(), width = channels / static_cast<std::size_t>(groups);
    const std::size_t image = in.size() / static_cast<std::size_t>(x.dim(0));
    y.resize(in.size()), dx.resize(in.size()), dgamma.resize(channels), dbeta.resize(channels);
    for (std::size_t start = 0; start < in.size(); start += image) {
      for (std::size_t group = 0; group < channels; group += width) {
        std::vector<std::size_t> of;  // elements of the group
        for (std::size_t i = start; i < start + image; ++i)
          if (i % channels >= group && i % channels < group + width) of.push_back(i);
        const auto n = static_cast<double>(of.size());
        double mean = 0, var = 0, sum_g = 0, sum_product = 0;
        for (const std::size_t i : of) mean += in[i] / n;
        for (const std::size_t i : of) var += (in[i] - mean) * (in[i] - mean) / n;
        const double inverse = 1 / std::sqrt(var + eps);
        for (const std::size_t i : of) {
          const double normalized = (in[i] - mean) * inverse, g = gradient[i] * weight[i % channels];
          y[i] = normalized * weight[i % channels] + bias[i % channels];
          dgamma[i % channels] += gradient[i] * normalized;
          dbeta[i % channels] += gradient[i];
          sum_g += g, sum_product += g * normalized;
        }
        for (const std::size_t i : of)
          dx[i] = inverse * (gradient[i] * weight[i % channels] - sum_g / n -
                             (in[i] - mean) * inverse * sum_product / n);
      }
    }
  }
};

}  // namespace athanor::test
