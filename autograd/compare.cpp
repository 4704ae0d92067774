#include "autograd/compare.h"

#include "autograd/detail/dense.h"
#include "autograd/detail/scalar_tensor.h"
#include "autograd/node.h"
#include "kernels/compare.h"
#include "kernels/on_device.h"

namespace athanor {
namespace {

using kernels::Predicate;

Tensor compare(const char* op, Predicate predicate, const Tensor& a, const Tensor& b) {
  ATH_CHECK(a.defined() && b.defined(), "{}: both tensors must be defined, but the {} is not", op,
            a.defined() ? "second" : "first");
  check_alike(op, "both tensors must have one dtype and device", a, b, /*floating=*/false);
  const Tensor y = Tensor::empty(broadcast_shapes(a.shape(), b.shape(), op), {DType::boolean, a.device()});
  on_device(a.device(), [&](auto& context) { kernels::compare(context, predicate, a, b, y); });
  return record({"compare", {{"predicate", {predicate}}}}, y, {a, b});
}

// The scalar as a tensor to compare with x.
Tensor number(const char* op, double value, const Tensor& x) {
  ATH_CHECK(x.defined(), "{}: tensor must be defined, but is not", op);
  return detail::scalar_like(op, "the number", value, x);
}

}  // namespace

#define ATH_DEFINE(name, predicate, left, right)              \
  Tensor name(const Tensor& a, const Tensor& b) {             \
    return compare(#name, Predicate::predicate, left, right); \
  }
ATH_DEFINE(eq, equal, a, b)
ATH_DEFINE(ne, not_equal, a, b)
ATH_DEFINE(lt, less, a, b)
ATH_DEFINE(le, less_equal, a, b)
ATH_DEFINE(gt, less, b, a)
ATH_DEFINE(ge, less_equal, b, a)
ATH_DEFINE(logical_and, logical_and, a, b)
ATH_DEFINE(logical_or, logical_or, a, b)
ATH_DEFINE(logical_xor, logical_xor, a, b)
#undef ATH_DEFINE

#define ATH_DEFINE(name)                   \
  Tensor name(const Tensor& a, double b) { \
    return name(a, number(#name, b, a));   \
  }
ATH_DEFINE(eq)
ATH_DEFINE(ne)
ATH_DEFINE(lt)
ATH_DEFINE(le)
ATH_DEFINE(gt)
ATH_DEFINE(ge)
#undef ATH_DEFINE

Tensor logical_not(const Tensor& x) {
  return compare("logical_not", Predicate::equal, x, number("logical_not", 0, x));
}

}  // namespace athanor
