#include <cmath>

#include "autograd/elementwise.h"
#include "autograd/engine.h"
#include "autograd/norm.h"
#include "bench/support/bench.h"
#include "kernels/copy.h"

namespace athanor::bench {
namespace {

/// A normalisation with its inputs, run through autograd once, so that y and the gradients are there.
struct Case {
  Tensor x, residual, gamma, beta, mean, var, dy, y;
  bool layer = false;
  Activation activation = Activation::none;

  Case(const Shape& shape, DType dtype, Activation act, bool with_residual, bool layer_norm,
       bool exact = false)
      : layer(layer_norm), activation(act) {
    const DType real = exact ? DType::f64 : DType::f32;
    const Shape channels = {shape[shape.rank() - 1]};
    const auto make = [=](const Shape& s, double low, double high, std::uint64_t seed) {
      const Tensor t = filled(s, dtype, low, high, seed);
      if (!exact) return t;
      return Tensor::from(t.to_vector(), s);
    };
    x = require_grad(make(shape, -1, 3, 1));
    if (with_residual) residual = require_grad(make(shape, -1, 1, 2));
    gamma = require_grad(filled(channels, real, 0.5, 1.5, 3));
    beta = require_grad(filled(channels, real, -0.5, 0.5, 4));
    mean = Tensor::zeros(channels, {real, kCpu});
    var = Tensor::zeros(channels, {real, kCpu});
    dy = make(shape, -1, 1, 5);
    y = forward();
  }
  Tensor forward() const {
    if (layer) return layer_norm(x, gamma, beta);
    return batch_norm(x, gamma, beta, mean, var, true, {.activation = activation}, residual);
  }
  void backward_once() const {
    for (const Tensor& t : {x, residual, gamma, beta}) {
      if (t.defined()) zero_grad(t);
    }
    backward(y, dy, {.retain_graph = true});
  }
};

// Where y is within rounding of 0, relu's derivative may be 0 in one precision and 1 in the other: gradients
// are compared by the size of their difference as a whole.
double overall_error(const Tensor& got, const Tensor& expected) {
  const std::vector<double> a = got.to_vector(), b = expected.to_vector();
  double difference = 0, size = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    difference += (a[i] - b[i]) * (a[i] - b[i]);
    size += b[i] * b[i];
  }
  return std::sqrt(difference / size);
}

double error_of(const Case& c, const Case& exact) {
  c.backward_once();
  exact.backward_once();
  double worst = std::max(max_error(c.y, exact.y), 1e-3 * overall_error(grad_of(c.x), grad_of(exact.x)));
  if (c.residual.defined())
    worst = std::max(worst, 1e-3 * overall_error(grad_of(c.residual), grad_of(exact.residual)));
  return worst;
}

struct Variant {
  const char* name;
  Activation activation;
  bool residual, layer;
  double forward, backward;  // elements moved per element, each tensor once per pass
};
constexpr Variant kVariants[] = {
    {"batch_norm", Activation::none, false, false, 3, 5},
    {"batch_norm_relu", Activation::relu, false, false, 3, 5},
    {"batch_norm_add_relu", Activation::relu, true, false, 4, 7},
    {"batch_norm_gelu", Activation::gelu, false, false, 3, 5},
    {"layer_norm", Activation::none, false, true, 2, 5},
};

void add_norm(const Variant& v, const Shape& shape, DType dtype) {
  const double bytes = static_cast<double>(shape.numel()) * static_cast<double>(size_of(dtype));
  const auto prepare = [=] {
    const Case c(shape, dtype, v.activation, v.residual, v.layer);
    const Case exact(shape, dtype, v.activation, v.residual, v.layer, true);
    return std::pair(c, error_of(c, exact));
  };
  const double tolerance = 8 * epsilon_of(dtype) + 1e-6;
  add({v.name, "fwd", dtype, shape_name(shape)}, {.bytes = v.forward * bytes}, [=] {
    const auto [c, error] = prepare();
    return Prepared{[c = c] { c.forward(); }, error, tolerance};
  });
  add({v.name, "bwd", dtype, shape_name(shape)}, {.bytes = v.backward * bytes}, [=] {
    const auto [c, error] = prepare();
    return Prepared{[c = c] { c.backward_once(); }, error, tolerance};
  });
}

}  // namespace

void register_all() {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const Variant& v : kVariants) {
      if (v.layer) {
        add_norm(v, {4096, 768}, dtype);
        continue;
      }
      for (const Shape& shape : {Shape{128, 32, 32, 16}, Shape{128, 16, 16, 32}, Shape{128, 8, 8, 64},
                                 Shape{64, 32, 32, 64}, Shape{64, 4, 4, 512}}) {
        add_norm(v, shape, dtype);
      }
    }
  }
}

}  // namespace athanor::bench
