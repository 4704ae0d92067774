#include "bench/support/tape_rows.h"

#include <algorithm>
#include <utility>

#include <fmt/ranges.h>

#include "autograd/engine.h"
#include "autograd/shape.h"

namespace athanor::bench {
namespace {

/// An op with inputs, its result, a gradient for it and what that gives.
struct Case {
  TapeOp fn;
  std::vector<Tensor> inputs;
  Tensor y, dy;
  std::vector<Tensor> gradients;

  Case(TapeOp op, std::vector<Tensor> values, const Tensor& gradient)
      : fn(std::move(op)), inputs(std::move(values)) {
    for (const Tensor& input : inputs) require_grad(input);
    y = fn(inputs);
    dy = cast(gradient.defined() ? gradient : filled(y.shape(), y.dtype(), -1, 1, 100), y.dtype());
    gradients = backward_once();
  }
  std::vector<Tensor> backward_once() const { return grad(y, inputs, dy, {.retain_graph = true}); }

  /// Beside the same numbers in f64.
  double error() const {
    std::vector<Tensor> values;
    for (const Tensor& input : inputs) values.push_back(cast(input.detach(), DType::f64));
    const Case exact(fn, values, dy);
    double largest = max_error(y, exact.y);
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      largest = std::max(largest, max_error(gradients[i], exact.gradients[i]));
    }
    return largest;
  }
};

Case make_case(const TapeOp& fn, const std::vector<Shape>& shapes, DType dtype) {
  std::vector<Tensor> inputs;
  for (const Shape& shape : shapes) inputs.push_back(filled(shape, dtype, -1, 1, inputs.size() + 1));
  return {fn, std::move(inputs), {}};
}

std::string names_of(const std::vector<Shape>& shapes) {
  std::vector<std::string> names;
  for (const Shape& shape : shapes) names.push_back(shape_name(shape));
  return fmt::format("{}", fmt::join(names, "+"));
}

double bytes_of(const Tensor& x) {
  return static_cast<double>(x.bytes());
}

}  // namespace

void add_tape_rows(const std::string& op, DType dtype, const std::vector<Shape>& inputs, const TapeOp& fn,
                   const TapeWork& work, double tolerance) {
  double read = 0;
  std::vector<Tensor> values;
  for (const Shape& shape : inputs) {
    values.push_back(Tensor::zeros(shape, {dtype}));
    read += bytes_of(values.back());
  }
  const double written = bytes_of(fn(values));
  const double returned = written + (work.backward_reads_inputs ? 2 * read : read);
  const double allowed = tolerance * epsilon_of(dtype);
  add({op, "fwd", dtype, names_of(inputs)}, {.bytes = read + written, .flops = work.forward_flops}, [=] {
    const Case c = make_case(fn, inputs, dtype);
    return Prepared{[c] { c.fn(c.inputs); }, c.error(), allowed};
  });
  add({op, "bwd", dtype, names_of(inputs)}, {.bytes = returned, .flops = work.backward_flops}, [=] {
    const Case c = make_case(fn, inputs, dtype);
    return Prepared{[c] { c.backward_once(); }, c.error(), allowed};
  });
}

}  // namespace athanor::bench
