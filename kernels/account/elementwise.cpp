#include "kernels/elementwise.h"

#include "kernels/account/detail/cost.h"
#include "kernels/compare.h"
#include "kernels/dropout.h"
#include "kernels/scalar_ops.h"

// One launch each, which reads every operand once.

namespace athanor::kernels {

using account::bytes;
using account::map;

template <> void affine(AccountContext& context, const Tensor& x, double, double, const Tensor& y) {
  map(context, "affine", bytes(x), y);
}
template <> void check_divisors(AccountContext&, const char*, const Tensor&) {}

#define ATH_SPECIALISE(Name, name)                                                                   \
  template <> void unary_forward<Name>(AccountContext & context, const Tensor& x, const Tensor& y) { \
    map(context, #name, bytes(x), y);                                                                \
  }                                                                                                  \
  template <>                                                                                        \
  void unary_backward<Name>(AccountContext & context, const Tensor& saved, const Tensor& dy,         \
                            const Tensor& dx) {                                                      \
    map(context, #name "_backward", bytes(saved, dy), dx);                                           \
  }
ATH_UNARY_OPS(ATH_SPECIALISE)
#undef ATH_SPECIALISE

#define ATH_SPECIALISE(Name, name)                                                                         \
  template <>                                                                                              \
  void binary_forward<Name>(AccountContext & context, const Tensor& a, const Tensor& b, const Tensor& y) { \
    map(context, #name, bytes(a, b), y);                                                                   \
  }
ATH_BINARY_OPS(ATH_SPECIALISE)
#undef ATH_SPECIALISE

#define ATH_SPECIALISE(Name, name)                                                            \
  template <>                                                                                 \
  void binary_backward<Name>(AccountContext & context, int, const Tensor& a, const Tensor& b, \
                             const Tensor& dy, const Tensor& dx) {                            \
    map(context, #name "_backward", bytes(a, b) + bytes(dy), dx);                             \
  }
ATH_BINARY_GRADIENTS(ATH_SPECIALISE)
#undef ATH_SPECIALISE

#define ATH_SPECIALISE(Op, name)                                                                          \
  template <> void scalar_forward(AccountContext& context, const Op&, const Tensor& x, const Tensor& y) { \
    map(context, #name, bytes(x), y);                                                                     \
  }                                                                                                       \
  template <>                                                                                             \
  void scalar_backward(AccountContext& context, const Op&, const Tensor& x, const Tensor& dy,             \
                       const Tensor& dx) {                                                                \
    map(context, #name "_backward", bytes(x, dy), dx);                                                    \
  }
ATH_SCALAR_OPS(ATH_SPECIALISE)
#undef ATH_SPECIALISE

template <>
void compare(AccountContext& context, Predicate, const Tensor& a, const Tensor& b, const Tensor& y) {
  map(context, "compare", bytes(a, b), y);
}

/// Seed and step, from the StepState, make the key.
template <> void dropout(AccountContext& context, float, const RandomOp&, const Tensor& x, const Tensor& y) {
  map(context, "dropout", bytes(x) + 16, y);
}

}  // namespace athanor::kernels
