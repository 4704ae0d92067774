#pragma once

#include "tensor/half.h"

// The maths of every elementwise op, written once: the CPU, CUDA and SIMT builds instantiate these functors
// on the accumulation type (float, or double for f64).

namespace athanor::kernels {

/// max(x, 0). The derivative at 0 is 0.
struct Relu {
  template <class A> ATH_HD static A forward(A x) { return x > A(0) ? x : A(0); }
  template <class A> ATH_HD static A backward(A x, A dy) { return x > A(0) ? dy : A(0); }
};

struct Add {
  template <class A> ATH_HD static A forward(A a, A b) { return a + b; }
};

struct Mul {
  template <class A> ATH_HD static A forward(A a, A b) { return a * b; }
};

}  // namespace athanor::kernels

/// Every unary op: drives the instantiations of each backend, the tests and the benchmark.
#define ATH_UNARY_OPS(X) X(Relu)
#define ATH_BINARY_OPS(X) X(Add) X(Mul)
