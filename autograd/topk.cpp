#include "autograd/topk.h"

#include "autograd/detail/dense.h"
#include "autograd/node.h"
#include "kernels/index.h"
#include "kernels/on_device.h"
#include "kernels/topk.h"

namespace athanor {

TopK topk(const Tensor& x, std::int64_t k, int axis, bool largest) {
  ATH_CHECK(x.defined() && x.dtype() != DType::boolean, "topk: tensor must hold numbers, but got {}",
            x.defined() ? name_of(x.dtype()) : "an undefined tensor");
  const int along = normalize_axis(axis, x.rank(), "topk");
  Shape shape = x.shape();
  ATH_CHECK(k >= 0 && k <= shape[along], "topk: k must be in [0, {}], the size of axis {} of {}, but is {}",
            shape[along], along, x.shape(), k);
  shape[along] = k;
  const Tensor values = Tensor::empty(shape, x.options());
  const Tensor indices = Tensor::empty(shape, {DType::i64, x.device()});
  if (k > 0) {
    on_device(x.device(),
              [&](auto& context) { kernels::topk(context, dense(x), along, largest, values, indices); });
  }
  return {record({"topk", {{"axis", {along}}, {"largest", {largest}}}, {indices}}, values, {x},
                 [indices = Saved(indices), before = x.shape(), options = x.options(), along](
                     const Tensor& dy, Grads& dx) {
                   const Tensor sum = dx.accumulator(0, before, options);
                   on_device(dy.device(), [&](auto& context) {
                     kernels::scatter_add(context, dense(dy), along, indices, sum);
                   });
                 }),
          indices};
}

}  // namespace athanor
