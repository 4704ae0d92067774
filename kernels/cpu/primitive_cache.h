#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "kernels/activation.h"
#include "kernels/context.h"
#include "kernels/packed_weights.h"

// Operations prepared for their shapes: by oneDNN or, if the key requests it, by our own conv_winograd.cpp,
// conv_pool.cpp or conv_few_pixels.cpp.

namespace athanor::cpu {

/// The operation and shapes of a primitive; equal keys share one. Members that an operation does not use stay
/// zero.
struct PrimitiveKey {
  enum class Op : std::uint8_t { conv_forward, conv_backward_data, conv_backward_weights, matmul };

  Op op{};
  DType in{};   ///< of x and dy, or of both factors
  DType out{};  ///< of the result
  bool bias = false;
  bool accumulate = false;  ///< adds to the current result
  bool winograd = false;    ///< our code for Winograd's algorithm, not oneDNN's
  bool pooled = false;      ///< our code with 2 x 2 max pooling and ReLU; only for packed conv_forward
  bool few_pixels = false;  ///< our code for few output pixels; only for packed conv_forward
  bool packed = false;      ///< weights are in Primitive::layout(); forward only
  bool residual = false;    ///< adds a tensor of the result's shape before the activation; conv_forward only
  Activation activation = Activation::none;  ///< none or relu, which turns NaN into 0
  int threads = 1;                           ///< number of threads it runs on
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
  /// The required layout of the second operand if the key is `packed`; else null.
  virtual const std::shared_ptr<const kernels::WeightLayout>& layout() const = 0;
};

/// A new primitive with its name; null if only reference code supports it.
struct MadePrimitive {
  std::unique_ptr<Primitive> primitive;
  std::string implementation;
};

/// The implementation of a key: a test asserts that it is never oneDNN's reference code.
struct PrimitiveInfo {
  PrimitiveKey key;
  std::string implementation;  ///< empty if there is none
};

/// Primitives by key. Each is created on first use; when the cache is full, it evicts the least recently used
/// one.
class PrimitiveCache {
 public:
  static constexpr std::size_t kCapacity = 1024;

  PrimitiveCache();
  ~PrimitiveCache();

  /// Null if oneDNN has only its reference code, or is not in this build. Throws
  /// BackendError.
  Primitive* find(const PrimitiveKey& key);
  std::vector<PrimitiveInfo> contents() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace athanor::cpu
