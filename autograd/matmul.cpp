#include "autograd/matmul.h"

#include <algorithm>

#include "autograd/detail/activation.h"
#include "autograd/detail/dense.h"
#include "autograd/node.h"
#include "autograd/packed_model.h"
#include "kernels/matmul.h"
#include "kernels/on_device.h"
#include "kernels/packed_weights.h"

namespace athanor {
namespace {

void check_operands(const char* op, const Tensor& a, const Tensor& b, const char* a_name = "a",
                    const char* b_name = "b") {
  ATH_CHECK(a.defined() && b.defined(), "{}: both operands must be defined", op);
  check_alike(op, "both operands must have one floating dtype and device", a, b, true, a_name, b_name);
  ATH_CHECK(a.rank() >= 1 && b.rank() >= 1, "{}: operands must have rank >= 1, but got {} and {}", op,
            a.shape(), b.shape());
}

/// The same elements as a matrix with `rank` axes: adds a vector's missing axis, then leading ones.
Tensor as_matrix(const Tensor& x, int rank, bool vector_is_row) {
  Shape shape;
  Strides strides;
  const int own = std::max(x.rank(), 2);
  for (int i = own; i < rank; ++i) shape.push_back(1), strides.push_back(0);
  if (x.rank() == 1 && vector_is_row) shape.push_back(1), strides.push_back(0);
  for (int i = 0; i < x.rank(); ++i) shape.push_back(x.shape()[i]), strides.push_back(x.strides()[i]);
  if (x.rank() == 1 && !vector_is_row) shape.push_back(1), strides.push_back(0);
  return x.detach().view_as_strided(shape, strides, 0);
}

Tensor transposed(const Tensor& x) {
  Shape shape = x.shape();
  Strides strides = x.strides();
  const int last = x.rank() - 1;
  std::swap(shape[last], shape[last - 1]);
  std::swap(strides[last], strides[last - 1]);
  return x.view_as_strided(shape, strides, 0);
}

void run(MatmulImpl impl, const Tensor& a, const Tensor& b, const Tensor& y, Write write = Write::overwrite,
         const Tensor& bias = {}, Activation activation = Activation::none) {
  on_device(y.device(),
            [&](auto& context) { kernels::matmul(context, impl, a, b, bias, activation, y, write); });
}

/// The rows of a dense x [..., K] as one matrix. K may be 0.
Tensor rows_of(const Tensor& x) {
  const std::int64_t columns = x.dim(-1);
  std::int64_t rows = 1;
  for (int axis = 0; axis + 1 < x.rank(); ++axis) rows *= x.shape()[axis];
  return x.detach().view_as_strided({rows, columns}, {columns, 1}, 0);
}

/// linear() with packed weights and bias; not recorded.
Tensor linear_packed(const Tensor& x, const kernels::PackedWeights& w, Activation activation) {
  Shape shape = x.shape();
  shape[x.rank() - 1] = w.shape()[0];
  const Tensor input = dense(x), y = Tensor::empty(shape, x.options());
  kernels::linear_packed(cpu_context(), rows_of(input), w, activation, rows_of(y));
  return record("linear", y, {}, [](const Tensor&, Grads&) {});
}

}  // namespace

Tensor matmul(const Tensor& a, const Tensor& b, MatmulImpl impl) {
  check_operands("matmul", a, b);
  const int rank = std::max({a.rank(), b.rank(), 2});
  const Tensor left = as_matrix(a, rank, true), right = as_matrix(b, rank, false);
  const std::int64_t m = left.shape()[rank - 2], k = left.shape()[rank - 1], n = right.shape()[rank - 1];
  ATH_CHECK(right.shape()[rank - 2] == k, "matmul: inner sizes must agree, but got {} and {}", a.shape(),
            b.shape());

  Shape product, shape;  // with all axes; without those of vectors
  const auto leading = [&](const Tensor& t) {
    return Shape(std::span(t.shape().begin(), t.shape().end() - 2));
  };
  for (std::int64_t size : broadcast_shapes(leading(left), leading(right), "matmul")) product.push_back(size);
  shape = product;
  product.push_back(m), product.push_back(n);
  if (a.rank() > 1) shape.push_back(m);
  if (b.rank() > 1) shape.push_back(n);
  const Tensor y = Tensor::empty(shape, a.options());
  run(impl, left, right, y.view_as_strided(product, contiguous_strides(product), 0));

  return record(
      "matmul", y, {a, b}, [a = Saved(a), b = Saved(b), impl, product](const Tensor& dy, Grads& dx) {
        const int axes = product.rank();
        // dy lacks the axes of vectors; they have size 1, so any stride works.
        Strides strides;
        int own = 0;
        const bool row = a.get().rank() == 1, column = b.get().rank() == 1;
        for (int i = 0; i < axes; ++i) {
          const bool dropped = (i == axes - 2 && row) || (i == axes - 1 && column);
          strides.push_back(dropped ? 1 : dy.strides()[own++]);
        }
        const Tensor gradient = dy.detach().view_as_strided(product, strides, 0);
        if (dx.needs(0)) {
          const auto [da, write] = dx.target(0, a);
          run(impl, gradient, transposed(as_matrix(b, axes, false)), as_matrix(da, axes, true), write);
        }
        if (dx.needs(1)) {
          const auto [db, write] = dx.target(1, b);
          run(impl, transposed(as_matrix(a, axes, true)), gradient, as_matrix(db, axes, false), write);
        }
      });
}

Tensor linear(const Tensor& x, const Tensor& w, const Tensor& bias, Activation activation, MatmulImpl impl) {
  if (impl == MatmulImpl::automatic) {
    if (const auto* const packed = detail::packed_weights("linear", x, w, bias);
        packed && w.rank() == 2 && x.rank() >= 1 && x.dim(-1) == w.dim(1))
      return linear_packed(x, *packed, activation);
  }
  if (detail::runs_separately(activation))
    return detail::activate(activation, linear(x, w, bias, Activation::none, impl));
  check_operands("linear", x, w, "x", "w");
  const std::int64_t k = x.dim(-1), n = w.shape()[0];
  ATH_CHECK(w.rank() == 2 && w.shape()[1] == k, "linear: w must be [N, {}] for x {}, but got {}", k,
            x.shape(), w.shape());
  if (bias.defined()) check_dense("linear", "bias", bias, x.dtype(), {n}, x.device());

  Shape shape = x.shape();
  shape[x.rank() - 1] = n;
  const Tensor input = dense(x), y = Tensor::empty(shape, x.options());
  run(impl, rows_of(input), transposed(w.detach()), rows_of(y), Write::overwrite, bias, activation);

  return record(
      {"linear", {{"activation", {activation}}}}, y, {x, w, bias},
      [input = Saved(input), w = Saved(w), y = Saved::output(activation == Activation::none ? Tensor() : y),
       activation, impl](const Tensor& dy, Grads& dx) {
        const Tensor dz = detail::activation_gradient(activation, y, dy);
        const Tensor gradient = rows_of(dz);
        if (dx.needs(0)) {
          const auto [target, write] = dx.target(0, input);
          run(impl, gradient, w.get().detach(), rows_of(target), write);
        }
        if (dx.needs(1)) {
          const auto [dw, write] = dx.target(1, w);
          run(impl, transposed(gradient), rows_of(input), dw, write);
        }
        if (dx.needs(2)) {
          const auto [db, write] = dx.target(2, Tensor::empty({w.get().shape()[0]}, dz.options()));
          on_device(dz.device(), [&, &sums = db, how = write](auto& context) {
            kernels::column_sums(context, dz, sums, how);
          });
        }
      });
}

}  // namespace athanor
