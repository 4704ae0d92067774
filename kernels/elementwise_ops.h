#pragma once

#include <functional>

#include "kernels/math.h"

// The maths of every elementwise op, written once: the CPU, CUDA and SIMT builds instantiate these functors
// on the accumulation type (float, or double for f64). forward(x) is the op; backward(saved, dy) is dL/dx.
// `saved` is the result y for an op with kFromOutput, so x can be freed; otherwise it is x. kOnnxNode names
// the operator of ONNX that computes the op, if there is one; nn/onnx/elementwise.cpp has formulas of others.

namespace athanor::kernels {

/// f(a, b); integers are computed unsigned, so overflow is defined.
template <class A, class F> ATH_HD A wrapped(A a, A b, const F& f) {
  if constexpr (std::is_integral_v<A>) {
    using Unsigned = std::make_unsigned_t<A>;
    return static_cast<A>(f(static_cast<Unsigned>(a), static_cast<Unsigned>(b)));
  } else {
    return f(a, b);
  }
}

/// Whether an op also accepts integers; they wrap.
template <class Op> inline constexpr bool kTakesIntegers = requires {
  requires Op::kTakesIntegers;
};
/// Whether an op divides integers, and so must refuse a divisor of 0.
template <class Op> inline constexpr bool kRefusesZero = requires {
  requires Op::kRefusesZero;
};

/// max(x, 0); NaN stays NaN. The derivative at 0 is 0.
struct Relu {
  static constexpr bool kFromOutput = true;
  static constexpr const char* kOnnxNode = "Relu";
  template <class A> ATH_HD static A forward(A x) { return x < A(0) ? A(0) : x; }
  template <class A> ATH_HD static A backward(A y, A dy) { return y <= A(0) ? A(0) : dy; }
};

/// min(max(x, 0), 6); NaN stays NaN. The derivative at 0 and 6 is 0.
struct Relu6 {
  static constexpr bool kFromOutput = true;
  template <class A> ATH_HD static A forward(A x) { return x < A(0) ? A(0) : x > A(6) ? A(6) : x; }
  template <class A> ATH_HD static A backward(A y, A dy) { return y <= A(0) || y >= A(6) ? A(0) : dy; }
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
    // The sigmoid is 0 or 1 beyond 100, where the slope could overflow to infinity and give NaN.
    constexpr A kMax = A(100);
    const A x = wide > kMax ? kMax : wide < -kMax ? -kMax : wide;
    // Computes sigmoid(z) sigmoid(-z) as large * small: 1 - sigmoid(z) would cancel near 1.
    const A z = twice_u(x), e = math::exp(-std::fabs(z));
    const A large = A(1) / (A(1) + e), small = e * large;
    const A slope = kLinear * std::fma(kCubic3 * x, x, A(1));
    return dy * std::fma(x * slope, small * large, z < A(0) ? small : large);
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

/// min(max(x + 3, 0), 6) / 6.
struct Hardsigmoid {
  static constexpr bool kFromOutput = false;
  template <class A> ATH_HD static A forward(A x) {
    const A gate = x + A(3);
    return (gate < A(0) ? A(0) : gate > A(6) ? A(6) : gate) / A(6);
  }
  template <class A> ATH_HD static A backward(A x, A dy) { return x > A(-3) && x < A(3) ? dy / A(6) : A(0); }
};

/// x hardsigmoid(x).
struct Hardswish {
  static constexpr bool kFromOutput = false;
  static constexpr const char* kOnnxNode = "HardSwish";
  template <class A> ATH_HD static A forward(A x) { return x * Hardsigmoid::forward(x); }
  template <class A> ATH_HD static A backward(A x, A dy) {
    return x <= A(-3) ? A(0) : x >= A(3) ? dy : dy * (x / A(3) + A(0.5));  // a NaN passes all
  }
};

/// x tanh(log(1 + e^x)). With q = e^-|x|, the tanh is n / (n + m) with n = q (q + 2), m = 2 below zero and
/// n = 1 + 2 q, m = 2 q^2 above: nothing overflows, and 1 - tanh = m / (n + m) does not cancel.
struct Mish {
  static constexpr bool kFromOutput = false;
  template <class A> ATH_HD static A forward(A x) {
    const A q = math::exp(-std::fabs(x));
    const A n = x < A(0) ? q * (q + A(2)) : A(1) + A(2) * q, m = x < A(0) ? A(2) : A(2) * q * q;
    return x * (n / (n + m));
  }
  template <class A> ATH_HD static A backward(A x, A dy) {
    const A q = math::exp(-std::fabs(x));
    const A n = x < A(0) ? q * (q + A(2)) : A(1) + A(2) * q, m = x < A(0) ? A(2) : A(2) * q * q;
    const A t = n / (n + m), slope = m / (n + m) * (A(1) + t) * math::sigmoid(x);
    return dy * std::fma(x, slope, t);
  }
};

/// 1 / (1 + exp(-x)).
struct Sigmoid {
  static constexpr bool kFromOutput = true;
  static constexpr const char* kOnnxNode = "Sigmoid";
  template <class A> ATH_HD static A forward(A x) { return math::sigmoid(x); }
  template <class A> ATH_HD static A backward(A y, A dy) { return dy * y * (A(1) - y); }
};

/// tanh(x).
struct Tanh {
  static constexpr bool kFromOutput = true;
  static constexpr const char* kOnnxNode = "Tanh";
  template <class A> ATH_HD static A forward(A x) { return math::tanh(x); }
  template <class A> ATH_HD static A backward(A y, A dy) { return dy * std::fma(-y, y, A(1)); }
};

/// exp(x).
struct Exp {
  static constexpr bool kFromOutput = true;
  static constexpr const char* kOnnxNode = "Exp";
  template <class A> ATH_HD static A forward(A x) { return math::exp(x); }
  template <class A> ATH_HD static A backward(A y, A dy) { return dy * y; }
};

/// The natural logarithm.
struct Log {
  static constexpr bool kFromOutput = false;
  static constexpr const char* kOnnxNode = "Log";
  template <class A> ATH_HD static A forward(A x) { return math::log(x); }
  template <class A> ATH_HD static A backward(A x, A dy) { return dy / x; }
};

/// sqrt(x).
struct Sqrt {
  static constexpr bool kFromOutput = true;
  static constexpr const char* kOnnxNode = "Sqrt";
  template <class A> ATH_HD static A forward(A x) { return std::sqrt(x); }
  template <class A> ATH_HD static A backward(A y, A dy) { return A(0.5) * dy / y; }
};

/// 1 / sqrt(x). d/dx = -y^3 / 2.
struct Rsqrt {
  static constexpr bool kFromOutput = true;
  template <class A> ATH_HD static A forward(A x) { return A(1) / std::sqrt(x); }
  template <class A> ATH_HD static A backward(A y, A dy) {
    return A(-0.5) * dy * y * y * y;  // y^3 alone may overflow
  }
};

/// x^2.
struct Square {
  static constexpr bool kFromOutput = false;
  template <class A> ATH_HD static A forward(A x) { return x * x; }
  template <class A> ATH_HD static A backward(A x, A dy) { return A(2) * dy * x; }
};

/// |x|. The derivative at 0 and at NaN is 0, as in PyTorch.
struct Abs {
  static constexpr bool kFromOutput = false, kTakesIntegers = true;
  static constexpr const char* kOnnxNode = "Abs";
  template <class A> ATH_HD static A forward(A x) {
    if constexpr (std::is_unsigned_v<A>) {
      return x;
    } else if constexpr (std::is_integral_v<A>) {
      return x < A(0) ? wrapped(A(0), x, std::minus<>()) : x;
    } else {
      return std::fabs(x);
    }
  }
  template <class A> ATH_HD static A backward(A x, A dy) { return x > A(0) ? dy : x < A(0) ? -dy : A(0); }
};

// Binary ops. For those with gradient functors (see autograd/elementwise.cpp), first(a, b, dy) is dL/da and
// second(a, b, dy) is dL/db.

/// a + b.
struct Add {
  static constexpr bool kTakesIntegers = true;
  static constexpr const char* kOnnxNode = "Add";
  template <class A> ATH_HD static A forward(A a, A b) { return wrapped(a, b, std::plus<>()); }
};

/// a - b.
struct Sub {
  static constexpr bool kTakesIntegers = true;
  static constexpr const char* kOnnxNode = "Sub";
  template <class A> ATH_HD static A forward(A a, A b) { return wrapped(a, b, std::minus<>()); }
};

/// a b.
struct Mul {
  static constexpr bool kTakesIntegers = true;
  static constexpr const char* kOnnxNode = "Mul";
  template <class A> ATH_HD static A forward(A a, A b) { return wrapped(a, b, std::multiplies<>()); }
};

/// a / b. The derivatives are 1 / b and -a / b^2. The latter's product is 0 where the quotient is, also if a
/// denormal b makes dy / b infinite. A large a is multiplied last, since a / b might overflow.
struct Div {
  static constexpr const char* kOnnxNode = "Div";
  template <class A> ATH_HD static A forward(A a, A b) { return a / b; }
  template <class A> ATH_HD static A first(A, A b, A dy) { return dy / b; }
  template <class A> ATH_HD static A second(A a, A b, A dy) {
    const A y = a / b, nothing = dy * y, slope = dy / b;
    const A product = std::fabs(a) < A(1) ? slope * y : slope * a / b;
    return -(y == A(0) ? nothing : product);
  }
};

/// The larger of two; NaN if either is NaN. Equal operands share the gradient, and a NaN passes it to both,
/// as in PyTorch.
struct Maximum {
  static constexpr bool kTakesIntegers = true;
  static constexpr const char* kOnnxNode = "Max";
  template <class A> ATH_HD static A forward(A a, A b) { return (a > b) | (a != a) ? a : b; }
  template <class A> ATH_HD static A first(A a, A b, A dy) { return a == b ? dy / A(2) : a < b ? A(0) : dy; }
  template <class A> ATH_HD static A second(A a, A b, A dy) { return first(b, a, dy); }
};

/// min(a, b).
struct Minimum {
  static constexpr bool kTakesIntegers = true;
  static constexpr const char* kOnnxNode = "Min";
  template <class A> ATH_HD static A forward(A a, A b) { return (a < b) | (a != a) ? a : b; }
  template <class A> ATH_HD static A first(A a, A b, A dy) { return a == b ? dy / A(2) : a > b ? A(0) : dy; }
  template <class A> ATH_HD static A second(A a, A b, A dy) { return first(b, a, dy); }
};

/// floor(a / b) by the rules of Python and PyTorch, computed from the exact remainder, so that no quotient is
/// rounded up to the next integer. Integers wrap; b = 0 gives 0, which the CPU refuses.
struct FloorDivide {
  static constexpr bool kTakesIntegers = true, kRefusesZero = true;
  template <class A> ATH_HD static A forward(A a, A b) {
    if constexpr (std::is_integral_v<A>) {
      if (b == A(0)) return A(0);
      if constexpr (std::is_signed_v<A>) {
        if (b == A(-1)) return wrapped(A(0), a, std::minus<>());
        return a / b - A(a % b != 0 && (a < 0) != (b < 0));
      }
      return static_cast<A>(a / b);
    } else {
      const A rest = std::fmod(a, b), quotient = a / b;
      const A whole = (a - rest) / b - A(rest != A(0) && (rest < A(0)) != (b < A(0)));
      const A below = std::floor(whole), nearest = whole - below > A(0.5) ? below + A(1) : below;
      return b == A(0) ? quotient : whole == A(0) ? std::copysign(A(0), quotient) : nearest;
    }
  }
};

/// a - floor_divide(a, b) b, exactly: 0 or of b's sign. The derivatives are 1 and -floor_divide(a, b), also
/// if that alone overflows.
struct Remainder {
  static constexpr bool kTakesIntegers = true, kRefusesZero = true;
  template <class A> ATH_HD static A forward(A a, A b) {
    if constexpr (std::is_unsigned_v<A>) {
      return b == A(0) ? A(0) : static_cast<A>(a % b);
    } else if constexpr (std::is_integral_v<A>) {
      if (b == A(0) || b == A(-1)) return A(0);
      const A rest = static_cast<A>(a % b);
      return rest != A(0) && (rest < A(0)) != (b < A(0)) ? static_cast<A>(rest + b) : rest;
    } else {
      const A rest = std::fmod(a, b);
      return rest != A(0) && (rest < A(0)) != (b < A(0)) ? rest + b : rest;
    }
  }
  template <class A> ATH_HD static A first(A, A, A dy) { return dy; }
  template <class A> ATH_HD static A second(A a, A b, A dy) {
    const A whole = FloorDivide::forward(a, b), product = dy * whole,
            large = std::fabs(a) < A(1) ? dy * a / b : dy / b * a;
    return -(std::fabs(whole) == std::numeric_limits<A>::infinity() ? large : product);
  }
};

/// a^b. The derivatives are b a^(b - 1), 0 for b = 0, and a^b log(a), 0 for a = 0 <= b: also where the power
/// alone overflows.
struct Pow {
  static constexpr const char* kOnnxNode = "Pow";
  template <class A> ATH_HD static A forward(A a, A b) { return math::pow(a, b); }
  template <class A> ATH_HD static A first(A a, A b, A dy) {
    return b == A(0) ? A(0) : math::scaled_pow(a, b - A(1), b, dy);
  }
  template <class A> ATH_HD static A second(A a, A b, A dy) {
    return a == A(0) && b >= A(0) ? A(0) : math::scaled_pow(a, b, math::log(a), dy);
  }
};

}  // namespace athanor::kernels

/// The activations that layers and norms accept as an option, as functor and public name. Drives the enum
/// Activation (kernels/activation.h), fusion into other kernels, and `athanor run-op`.
#define ATH_ACTIVATIONS(X) \
  X(Relu, relu)            \
  X(Gelu, gelu)            \
  X(Silu, silu)            \
  X(Relu6, relu6)          \
  X(Hardswish, hardswish)
/// Every unary op: drives the instantiations of each backend, the functions of autograd/elementwise.cpp, the
/// modules of nn/activation.h, the tests and `athanor run-op`.
#define ATH_UNARY_OPS(X)      \
  ATH_ACTIVATIONS(X)          \
  X(GeluTanh, gelu_tanh)      \
  X(Hardsigmoid, hardsigmoid) \
  X(Mish, mish)               \
  X(Sigmoid, sigmoid)         \
  X(Tanh, tanh)               \
  X(Exp, exp)                 \
  X(Log, log)                 \
  X(Sqrt, sqrt)               \
  X(Rsqrt, rsqrt)             \
  X(Square, square)           \
  X(Abs, abs)
/// Binary ops whose gradients are functors of both operands; those that have gradient functors; and all.
#define ATH_BINARY_OPS_WITH_GRADIENTS(X) \
  X(Maximum, maximum)                    \
  X(Minimum, minimum)                    \
  X(Remainder, remainder)                \
  X(Pow, pow)
#define ATH_BINARY_GRADIENTS(X) \
  X(Div, div)                   \
  ATH_BINARY_OPS_WITH_GRADIENTS(X)
#define ATH_BINARY_OPS(X)      \
  X(Add, add)                  \
  X(Sub, sub)                  \
  X(Mul, mul)                  \
  X(Div, div)                  \
  X(FloorDivide, floor_divide) \
  ATH_BINARY_OPS_WITH_GRADIENTS(X)
