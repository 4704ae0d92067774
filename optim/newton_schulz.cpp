#include "optim/newton_schulz.h"

#include <algorithm>
#include <utility>

#include "kernels/matmul.h"
#include "kernels/muon.h"
#include "kernels/on_device.h"
#include "optim/flat.h"

namespace athanor {
namespace {

Tensor transposed(const Tensor& x) {
  return x.view_as_strided({x.dim(0), x.dim(2), x.dim(1)}, {x.dim(1) * x.dim(2), 1, x.dim(2)}, 0);
}

}  // namespace

NewtonSchulz::NewtonSchulz(DType dtype, Device device, std::int64_t elements, std::int64_t squares)
    : x_(make_flat(elements, dtype, device)),
      next_(make_flat(elements, dtype, device)),
      gram_(make_flat(squares, dtype, device)),
      factor_(make_flat(squares, dtype, device)),
      product_(make_flat(squares, dtype, device)) {}

Tensor NewtonSchulz::input(const Shape& matrices) const {
  return slice_of(x_, 0, matrices);
}

// X -> a X + (b A + c A^2) X = (a I + A (b I + c A)) X.
Tensor NewtonSchulz::run(const Shape& matrices, const MuonOptions& options) const {
  return on_device(x_.device(), [&](auto& context) {
    const auto multiply = [&](const Tensor& left, const Tensor& right, const Tensor& product) {
      kernels::matmul(context, MatmulImpl::automatic, left, right, {}, Activation::none, product,
                      Write::overwrite);
    };
    const auto [a, b, c] = options.coefficients;
    const bool tall = matrices[1] > matrices[2];
    const std::int64_t side = std::min(matrices[1], matrices[2]);
    const Shape squares{matrices[0], side, side};
    const Tensor gram = slice_of(gram_, 0, squares), factor = slice_of(factor_, 0, squares),
                 product = slice_of(product_, 0, squares);
    Tensor x = slice_of(x_, 0, matrices), next = slice_of(next_, 0, matrices);
    kernels::normalize(context, x, options.eps);
    for (int i = 0; i < options.iterations; ++i) {
      const Tensor mirror = transposed(x);
      multiply(tall ? mirror : x, tall ? x : mirror, gram);
      kernels::scale_add_identity(context, gram, c, b, factor);
      multiply(gram, factor, product);
      kernels::scale_add_identity(context, product, 1, a, product);
      multiply(tall ? x : product, tall ? product : x, next);
      std::swap(x, next);
    }
    return x;
  });
}

}  // namespace athanor
