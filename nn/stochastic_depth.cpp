#include "nn/stochastic_depth.h"

#include "autograd/creation.h"
#include "autograd/dropout.h"
#include "autograd/elementwise.h"

namespace athanor::nn {

StochasticDepth::StochasticDepth(double p) : p_(0) {
  set_p(p);
}

void StochasticDepth::set_p(double p) {
  ATH_CHECK(p >= 0 && p <= 1, "StochasticDepth: probability must be in [0, 1], but got {}", p);
  p_ = p;
}

Tensor StochasticDepth::forward(const Tensor& x) {
  ATH_CHECK(x.rank() >= 1 && is_floating(x.dtype()),
            "StochasticDepth: input must be floating [N, ...], but got {} {}", x.shape(), x.dtype());
  if (!training() || p_ == 0) return x;
  Shape samples{x.dim(0)};
  for (int axis = 1; axis < x.rank(); ++axis) samples.push_back(1);
  return x * dropout(ones(samples, x.options()), static_cast<float>(p_), true);
}

}  // namespace athanor::nn
