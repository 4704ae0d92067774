#include <cmath>

#include "autograd/elementwise.h"
#include "autograd/engine.h"
#include "bench/support/bench.h"

// What recording and replaying cost: chains of ops on one element, where the arithmetic is nothing. The ops
// are 1,000, so a row's median_us is also nanoseconds per op, forward and backward together.

namespace athanor::bench {
namespace {

constexpr int kOps = 1000;

template <class Op> void add_chain(const char* name, const Shape& other, double slope, const Op& op) {
  add({name, "step", DType::f32, fmt::format("{}x{}", kOps, shape_name(other))}, {}, [=] {
    const Tensor x = Tensor::zeros({1}), step = Tensor::zeros(other);
    require_grad(x);
    const auto run = [=] {
      zero_grad(x);
      Tensor y = x;
      for (int i = 0; i < kOps; ++i) y = op(y, step);
      backward(y);
    };
    run();
    return Prepared{run, std::abs(grad_of(x).item() - slope), 0};
  });
}

}  // namespace

void register_all() {
  add_chain("add", {1}, 1, [](const Tensor& y, const Tensor& step) { return y + step; });
  add_chain("add_scalar", {}, 1, [](const Tensor& y, const Tensor& step) { return y + step; });
  add_chain("sub", {1}, 1, [](const Tensor& y, const Tensor& step) { return y - step; });
  add_chain("affine", {1}, 1, [](const Tensor& y, const Tensor&) { return affine(y, 1, 1); });
  add_chain("abs", {1}, 0, [](const Tensor& y, const Tensor&) { return abs(y); });
  add({"add_untaped", "fwd", DType::f32, fmt::format("{}x1", kOps)}, {}, [] {
    const Tensor x = Tensor::zeros({1});
    return Prepared{[=] {
      Tensor y = x;
      for (int i = 0; i < kOps; ++i) y = y + x;
    }};
  });
}

}  // namespace athanor::bench
