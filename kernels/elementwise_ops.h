#pragma once

#include "kernels/math.h"

// The maths of every elementwise op, written once: the CPU, CUDA and SIMT builds instantiate these functors
// on the accumulation type (float, or double for f64). forward(x) is the op; backward(saved, dy) is dL/dx,
// where `saved` is x, or the result y in an op that says kFromOutput: then x need not be kept alive.

namespace athanor::kernels {

/// max(x, 0); NaN stays NaN. The derivative at 0 is 0.
struct Relu {
  static constexpr bool kFromOutput = true;
  template <class A> ATH_HD static A forward(A x) { return x < A(0) ? A(0) : x; }
  template <class A> ATH_HD static A backward(A y, A dy) { return y <= A(0) ? A(0) : dy; }
};

/// x Phi(x), with Phi the normal distribution function. d/dx = Phi(x) + x phi(x).
struct Gelu {
  static constexpr bool kFromOutput = false;
  template <class A> ATH_HD static A distribution(A x) {
    constexpr A kRootHalf = static_cast<A>(0.70710678118654752440L);
    return std::fma(A(0.5), math::erf(x * kRootHalf), A(0.5));
  }
  template <class A> ATH_HD static A forward(A x) { return x * distribution(x); }
  template <class A> ATH_HD static A backward(A x, A dy) {
    constexpr A kPeak = static_cast<A>(0.39894228040143267794L);  // 1 / sqrt(2 pi)
    const A density = kPeak * math::exp(A(-0.5) * x * x);
    return dy * std::fma(x, density, distribution(x));
  }
};

/// The tanh form, x (1 + tanh(u)) / 2 with u = sqrt(2 / pi) (x + 0.044715 x^3), as x sigmoid(2 u).
struct GeluTanh {
  static constexpr bool kFromOutput = false;
  template <class A> ATH_HD static A twice_u(A x) {
    constexpr A kLinear = static_cast<A>(1.59576912160573071176L), kCubic = A(0.044715);
    return kLinear * x * std::fma(kCubic * x, x, A(1));
  }
  template <class A> ATH_HD static A forward(A x) { return x * math::sigmoid(twice_u(x)); }
  template <class A> ATH_HD static A backward(A wide, A dy) {
    constexpr A kLinear = static_cast<A>(1.59576912160573071176L), kCubic3 = A(3 * 0.044715);
    // The sigmoid has long been 0 or 1 at 100; further out the slope would be infinite, and NaN times 0.
    constexpr A kMost = A(100);
    const A x = wide > kMost ? kMost : wide < -kMost ? -kMost : wide;
    const A s = math::sigmoid(twice_u(x));
    const A slope = kLinear * std::fma(kCubic3 * x, x, A(1));
    return dy * s * std::fma(x * slope, A(1) - s, A(1));
  }
};

/// x sigmoid(x).
struct Silu {
  static constexpr bool kFromOutput = false;
  template <class A> ATH_HD static A forward(A x) { return x * math::sigmoid(x); }
  template <class A> ATH_HD static A backward(A x, A dy) {
    const A s = math::sigmoid(x);
    return dy * s * std::fma(x, A(1) - s, A(1));
  }
};

struct Sigmoid {
  static constexpr bool kFromOutput = true;
  template <class A> ATH_HD static A forward(A x) { return math::sigmoid(x); }
  template <class A> ATH_HD static A backward(A y, A dy) { return dy * y * (A(1) - y); }
};

struct Tanh {
  static constexpr bool kFromOutput = true;
  template <class A> ATH_HD static A forward(A x) { return math::tanh(x); }
  template <class A> ATH_HD static A backward(A y, A dy) { return dy * std::fma(-y, y, A(1)); }
};

struct Exp {
  static constexpr bool kFromOutput = true;
  template <class A> ATH_HD static A forward(A x) { return math::exp(x); }
  template <class A> ATH_HD static A backward(A y, A dy) { return dy * y; }
};

struct Log {
  static constexpr bool kFromOutput = false;
  template <class A> ATH_HD static A forward(A x) { return math::log(x); }
  template <class A> ATH_HD static A backward(A x, A dy) { return dy / x; }
};

struct Sqrt {
  static constexpr bool kFromOutput = true;
  template <class A> ATH_HD static A forward(A x) { return std::sqrt(x); }
  template <class A> ATH_HD static A backward(A y, A dy) { return A(0.5) * dy / y; }
};

struct Square {
  static constexpr bool kFromOutput = false;
  template <class A> ATH_HD static A forward(A x) { return x * x; }
  template <class A> ATH_HD static A backward(A x, A dy) { return A(2) * dy * x; }
};

/// |x|. The derivative at 0 and at NaN is 0, as PyTorch has it.
struct Abs {
  static constexpr bool kFromOutput = false;
  template <class A> ATH_HD static A forward(A x) { return std::fabs(x); }
  template <class A> ATH_HD static A backward(A x, A dy) { return x > A(0) ? dy : x < A(0) ? -dy : A(0); }
};

// Binary ops. Their derivatives are ops themselves: see autograd/elementwise.cpp.

struct Add {
  template <class A> ATH_HD static A forward(A a, A b) { return a + b; }
};

struct Sub {
  template <class A> ATH_HD static A forward(A a, A b) { return a - b; }
};

struct Mul {
  template <class A> ATH_HD static A forward(A a, A b) { return a * b; }
};

struct Div {
  template <class A> ATH_HD static A forward(A a, A b) { return a / b; }
};

}  // namespace athanor::kernels

/// The activations that layers and norms take as an option, as functor and public name: drives the enum
/// Activation (kernels/activation.h), what is fused into other kernels, and `athanor run-op`.
#define ATH_ACTIVATIONS(X) \
  X(Relu, relu)            \
  X(Gelu, gelu)            \
  X(Silu, silu)
/// Every unary op: drives the instantiations of each backend, the functions of autograd/elementwise.cpp, the
/// modules of nn/activation.h, the tests and `athanor run-op`.
#define ATH_UNARY_OPS(X) \
  ATH_ACTIVATIONS(X)     \
  X(GeluTanh, gelu_tanh) \
  X(Sigmoid, sigmoid)    \
  X(Tanh, tanh)          \
  X(Exp, exp)            \
  X(Log, log)            \
  X(Sqrt, sqrt)          \
  X(Square, square)      \
  X(Abs, abs)
#define ATH_BINARY_OPS(X) X(Add, add) X(Sub, sub) X(Mul, mul) X(Div, div)
