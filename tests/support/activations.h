#pragma once

#include "autograd/elementwise.h"
#include "kernels/activation.h"

namespace athanor::test {

/// Every activation that an op may apply, and none.
inline constexpr Activation kActivations[] = {Activation::none,
#define ATH_LIST(Op, name) Activation::name,
                                              ATH_ACTIVATIONS(ATH_LIST)
#undef ATH_LIST
};

inline const char* name_of(Activation activation) {
  switch (activation) {
    case Activation::none: return "none";
#define ATH_CASE(Op, name) \
  case Activation::name: return #name;
      ATH_ACTIVATIONS(ATH_CASE)
#undef ATH_CASE
  }
  return "unknown";
}

/// The activation as an op of its own.
inline Tensor activated(Activation activation, const Tensor& x) {
  switch (activation) {
    case Activation::none: return x;
#define ATH_CASE(Op, name) \
  case Activation::name: return name(x);
      ATH_ACTIVATIONS(ATH_CASE)
#undef ATH_CASE
  }
  return x;
}

}  // namespace athanor::test
