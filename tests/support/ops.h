#pragma once

// What the tests of ops share: the headers that all of them need, and what they ask of every op.

#include <cmath>
#include <functional>
#include <initializer_list>
#include <ostream>
#include <span>
#include <vector>

#include <gtest/gtest.h>

#include "autograd/conv.h"
#include "autograd/creation.h"
#include "autograd/elementwise.h"
#include "autograd/engine.h"
#include "autograd/gradcheck.h"
#include "autograd/loss.h"
#include "autograd/matmul.h"
#include "autograd/norm.h"
#include "autograd/pool.h"
#include "autograd/reduce.h"
#include "autograd/shape.h"
#include "kernels/copy.h"
#include "kernels/cpu/context.h"
#include "tests/support/cases.h"
#include "tests/support/compare.h"
#include "tests/support/errors.h"

namespace athanor {

/// How GoogleTest shows the dtype of a test.
inline void PrintTo(DType dtype, std::ostream* to) {
  *to << name_of(dtype);
}

}  // namespace athanor

namespace athanor::test {

using In = std::span<const Tensor>;
inline constexpr Reduction kReductions[] = {Reduction::mean, Reduction::sum, Reduction::none};
inline constexpr double kInf = INFINITY, kNaN = NAN;

/// The CPU works by so many threads in a scope.
class Threads {
 public:
  explicit Threads(int count) { cpu_context().set_threads(count); }
  ~Threads() { cpu_context().set_threads(before_); }
  Threads(const Threads&) = delete;
  Threads& operator=(const Threads&) = delete;

 private:
  const int before_ = cpu_context().threads();
};

/// Values in (0.1, 2.1) or (-2.1, 2.1), none near a kink, that every floating dtype holds about as well.
inline Tensor unlike_values(const Shape& shape, DType dtype, bool positive, int seed = 1) {
  const Tensor x = Tensor::empty(shape, {DType::f64, kCpu});
  for (std::int64_t i = 0; i < x.numel(); ++i) {
    const double v = 0.1 + 2.0 * std::fmod(0.61803398875 * static_cast<double>(i + seed), 1.0);
    x.data<double>()[i] = !positive && (i + seed) % 3 == 0 ? -v : v;
  }
  return clone(cast(x, dtype));
}

/// The tensors that run() returns have the same bits by one thread and by others.
template <class F> void expect_same_by_threads(const F& run, std::initializer_list<int> counts = {3}) {
  const auto by = [&](int threads) {
    const Threads own(threads);
    return std::vector<Tensor>(run());
  };
  const std::vector<Tensor> one = by(1);
  for (const int threads : counts) {
    const std::vector<Tensor> all = by(threads);
    for (std::size_t i = 0; i < one.size(); ++i)
      EXPECT_TRUE(same_bits(all[i], one[i])) << "result " << i << " by " << threads;
  }
}

/// A copy of x in that dtype, which needs a gradient.
inline Tensor leaf_like(const Tensor& x, DType dtype) {
  const Tensor copy = Tensor::empty(x.shape(), {dtype, x.device()});
  kernels::copy(cpu_context(), x.detach(), copy);
  return require_grad(copy);
}

/// Central differences of f at leaves, which it makes of the inputs.
inline void check_gradients(const std::function<Tensor(In)>& f, std::initializer_list<Tensor> inputs,
                            const GradcheckOptions& options = {}) {
  for (const Tensor& x : inputs) require_grad(x);
  gradcheck(f, std::span(inputs.begin(), inputs.size()), options);
}

/// f's result and its inputs' gradients, for the dL/dy that `seed` makes for the result.
inline std::vector<Tensor> results_of(const std::function<Tensor(In)>& f, const std::vector<Tensor>& inputs,
                                      const std::function<Tensor(const Tensor&)>& seed) {
  for (const Tensor& x : inputs) zero_grad(require_grad(x));
  const Tensor y = f(inputs);
  backward(y, seed(y));
  std::vector<Tensor> results{y.detach()};
  for (const Tensor& x : inputs) results.push_back(clone(grad_of(x)));
  return results;
}

}  // namespace athanor::test
