#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "kernels/activation.h"
#include "kernels/context.h"
#include "kernels/packed_weights.h"

// Operations that are prepared for their shapes: by oneDNN, or, where the key asks for it, by our own
// conv_winograd.cpp or conv_pool.cpp.

namespace athanor::cpu {

/// What a primitive does and for which shapes; equal keys share one. Members that an operation does not use
/// stay zero.
struct PrimitiveKey {
  enum class Op : std::uint8_t { conv_forward, conv_backward_data, conv_backward_weights, matmul };

  Op op{};
  DType in{};   ///< of x and dy, or of both factors
  DType out{};  ///< of the result
  bool bias = false;
  bool accumulate = false;  ///< adds to what the result holds
  bool winograd = false;    ///< our code for Winograd's algorithm, not oneDNN's
  bool pooled = false;      ///< our code with 2 x 2 max pooling and ReLU behind it; packed conv_forward alone
  bool packed = false;      ///< weights come in Primitive::layout(); forward alone
  bool residual = false;    ///< a tensor like the result is added before the activation; conv_forward alone
  Activation activation = Activation::none;  ///< none or relu, which makes 0 of NaN
  int threads = 1;                           ///< that it runs on
  /// conv: N H W C K R S P Q, stride, padding, dilation along H and W, groups.
  /// matmul: M N K, row and column strides of the factors, row stride of the result.
  std::array<std::int64_t, 16> sizes{};

  bool operator==(const PrimitiveKey&) const = default;
};

/// A compiled operation, with everything it needs to run again.
class Primitive {
 public:
  virtual ~Primitive() = default;

  /// Operands in plain layouts, by operation:
  /// conv_forward (x, w, bias, y), conv_backward_data (dy, w, -, dx), conv_backward_weights (x, dy, -, dw),
  /// matmul (a, b, bias, y). Throws BackendError.
  virtual void run(const CpuContext& context, const void* first, const void* second, const void* bias,
                   void* out, const void* residual = nullptr) = 0;
  /// What the second operand must be in where the key says `packed`; else null.
  virtual const std::shared_ptr<const kernels::WeightLayout>& layout() const = 0;
};

/// A new one, null where there is nothing better than reference code, and what it is called.
struct MadePrimitive {
  std::unique_ptr<Primitive> primitive;
  std::string implementation;
};

/// What runs for a key: a test asserts that it never is oneDNN's reference code.
struct PrimitiveInfo {
  PrimitiveKey key;
  std::string implementation;  ///< empty where there is none
};

/// Primitives by key. One is made the first time a key is met; the least recently used one goes when
/// the cache is full.
class PrimitiveCache {
 public:
  static constexpr std::size_t kCapacity = 1024;

  PrimitiveCache();
  ~PrimitiveCache();

  /// Null where oneDNN has nothing better than its reference code, or is not in this build. Throws
  /// BackendError.
  Primitive* find(const PrimitiveKey& key);
  std::vector<PrimitiveInfo> contents() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace athanor::cpu
