#include "optim/newton_schulz.h"

#include <algorithm>
#include <utility>

#include "kernels/muon.h"
#include "kernels/on_device.h"
#include "optim/flat.h"

namespace athanor {

NewtonSchulz::NewtonSchulz(DType dtype, Device device, std::int64_t elements, std::int64_t squares)
    : x_(make_flat(elements, dtype, device)),
      next_(make_flat(elements, dtype, device)),
      gram_(make_flat(squares, dtype, device)),
      factor_(make_flat(squares, dtype, device)) {}

Tensor NewtonSchulz::input(const Shape& matrices) const {
  return slice_of(x_, 0, matrices);
}

Tensor NewtonSchulz::run(const Shape& matrices, const MuonOptions& options) const {
  return on_device(x_.device(), [&](auto& context) {
    const std::int64_t side = std::min(matrices[1], matrices[2]);
    const Shape squares{matrices[0], side, side};
    const Tensor gram = slice_of(gram_, 0, squares), factor = slice_of(factor_, 0, squares);
    Tensor x = slice_of(x_, 0, matrices), next = slice_of(next_, 0, matrices);
    kernels::normalize(context, x, options.eps);
    for (int i = 0; i < options.iterations; ++i) {
      kernels::newton_schulz(context, x, options.coefficients, gram, factor, next);
      std::swap(x, next);
    }
    return x;
  });
}

}  // namespace athanor
