#include "autograd/gradcheck.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "autograd/detail/replay_random.h"
#include "autograd/engine.h"
#include "tensor/philox.h"

namespace athanor {
namespace {

using Function = std::function<Tensor(std::span<const Tensor>)>;

// Calls visit(flat index, element offset) for every element of a strided tensor, in row-major order.
template <class F> void for_each_element(const Tensor& x, const F& visit) {
  for (std::int64_t flat = 0; flat < x.numel(); ++flat) {
    std::int64_t rest = flat, offset = 0;
    for (int axis = x.rank() - 1; axis >= 0; --axis) {
      offset += rest % x.shape()[axis] * x.strides()[axis];
      rest /= x.shape()[axis];
    }
    visit(flat, offset);
  }
}

Shape index_of(std::int64_t flat, const Shape& shape) {
  Shape index = shape;
  for (int axis = shape.rank() - 1; axis >= 0; --axis) {
    index[axis] = flat % shape[axis];
    flat /= shape[axis];
  }
  return index;
}

// One element of x, in any memory. Writing it does not bump the version, as no graph of a check outlives the
// write.
class Element {
 public:
  Element(const Tensor& x, std::int64_t offset)
      : at_(Tensor::wrap(x.storage(), x.offset() + offset, {}, {}, DType::f64)) {}
  double get() const { return at_.item(); }
  void set(double value) const { at_.copy_bytes_from(Tensor::from(std::vector<double>{value}, {})); }

 private:
  Tensor at_;
};

// Every evaluation draws the same random numbers.
Tensor evaluate(const Function& fn, std::span<const Tensor> inputs) {
  const detail::ReplayRandom replay(inputs.empty() ? kCpu : inputs[0].device(), 0);
  Tensor y = fn(inputs);
  ATH_CHECK(y.defined() && y.dtype() == DType::f64,
            "gradcheck: the function must return f64, but returned {}",
            y.defined() ? name_of(y.dtype()) : "an undefined tensor");
  return y;
}

double contracted(const Function& fn, std::span<const Tensor> inputs, const std::vector<double>& weights) {
  const NoGrad no_grad;
  const std::vector<double> y = evaluate(fn, inputs).to_vector();
  ATH_CHECK(y.size() == weights.size(),
            "gradcheck: the function must return {} elements in every call, but returned {}", weights.size(),
            y.size());
  double total = 0;
  for (std::size_t i = 0; i < y.size(); ++i) total += y[i] * weights[i];
  return total;
}

void check_inputs(std::span<const Tensor> inputs) {
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const Tensor& x = inputs[i];
    if (!x.requires_grad()) continue;
    ATH_CHECK(x.autograd()->is_leaf() && x.dtype() == DType::f64,
              "gradcheck: input {} must be an f64 leaf, but is a {} {}", i, x.dtype(),
              x.autograd()->is_leaf() ? "leaf" : "result");
    for (int axis = 0; axis < x.rank(); ++axis) {
      ATH_CHECK(x.shape()[axis] <= 1 || x.strides()[axis] != 0,
                "gradcheck: elements of input {} must not share memory, but axis {} is expanded", i, axis);
    }
  }
}

}  // namespace

void gradcheck(const Function& fn, std::span<const Tensor> inputs, const GradcheckOptions& options) {
  const AllowSync reads_values;
  check_inputs(inputs);

  const Tensor y = evaluate(fn, inputs);
  std::vector<double> weights(static_cast<std::size_t>(y.numel()));
  const RandomKey key{0, random_stream(RandomPurpose::check, 0)};
  for (std::size_t i = 0; i < weights.size(); ++i) weights[i] = 2.0 * random_uniform(philox_word(key, i)) - 1;
  const std::vector<Tensor> gradients = grad(y, inputs, Tensor::from(weights, y.shape(), y.device()));

  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const Tensor& x = inputs[i];
    if (!x.requires_grad()) continue;
    const Tensor& gradient = gradients[i];
    if (gradient.defined() && gradient.shape() != x.shape()) {
      detail::fail<Error>("gradcheck: the gradient of input {} must have its shape {}, but has {}", i,
                          x.shape(), gradient.shape());
    }
    const std::vector<double> computed =
        gradient.defined() ? gradient.to_vector() : std::vector<double>(static_cast<std::size_t>(x.numel()));
    for_each_element(x, [&](std::int64_t flat, std::int64_t offset) {
      const Element element(x, offset);
      const double value = element.get(), step = options.step * std::max(1.0, std::abs(value));
      const double higher = value + step, lower = value - step;
      element.set(higher);
      const double above = contracted(fn, inputs, weights), up = higher - value;
      element.set(lower);
      const double below = contracted(fn, inputs, weights), down = value - lower;
      element.set(value);
      const double expected = (above - below) / (up + down);
      const double got = computed[static_cast<std::size_t>(flat)];
      const double tolerance =
          options.absolute + options.relative * std::max(std::abs(expected), std::abs(got));
      if (!(std::abs(expected - got) <= tolerance)) {
        detail::fail<Error>(
            "gradcheck: the gradient of input {} at element {} of {} must be {} by central differences, but "
            "backward gave {} (off by {}, allowed {})",
            i, index_of(flat, x.shape()), x.shape(), expected, got, std::abs(expected - got), tolerance);
      }
    });
  }
}

}  // namespace athanor
