#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "kernels/activation.h"
#include "kernels/cpu/context.h"
#include "kernels/int8_weights.h"
#include "kernels/packed_weights.h"

// Operations prepared for their shapes, and the implementations that prepare them.

namespace athanor::cpu {

struct Implementation;
struct Int8Operands;  // kernels/cpu/int8_conv.h

/// What an operation does besides its product and a bias.
struct Fused {
  Activation activation = Activation::none;  ///< of the result, the last step
  bool residual = false;                     ///< adds a tensor of the result's shape
  bool accumulate = false;                   ///< adds to the current result
  bool packed = false;                       ///< the weights are in Primitive::layout(); forward only
  bool sums = false;                         ///< also writes Operands::sums
  bool pooled = false;                       ///< takes the maximum of each 2 x 2 before the ReLU

  bool operator==(const Fused&) const = default;
};

/// An operation with its shapes; equal keys share one primitive. Members that an operation does not use stay
/// zero.
struct PrimitiveKey {
  enum class Op : std::uint8_t { conv_forward, conv_backward_data, conv_backward_weights, matmul, conv_int8 };

  const Implementation* by = nullptr;
  Op op{};
  DType in{};   ///< of x and dy, or of both factors
  DType out{};  ///< of the result
  bool bias = false;
  Fused fused;
  int threads = 1;  ///< number of threads it runs on
  /// conv, conv_int8: N H W C K R S P Q, stride, padding, dilation along H and W, groups.
  /// matmul: M N K, row and column strides of the factors, row stride of the result.
  std::array<std::int64_t, 16> sizes{};

  bool operator==(const PrimitiveKey&) const = default;
};

/// Operands in plain layouts: conv_forward (x, w, bias, y), conv_backward_data (dy, w, -, dx),
/// conv_backward_weights (x, dy, -, dw), matmul (a, b, bias, y). The bias of packed weights is f32.
struct Operands {
  const void *first, *second, *bias;
  void* out;
  const void* residual = nullptr;
  double* sums = nullptr;              ///< [2, K], see conv2d_forward_sums()
  const Int8Operands* int8 = nullptr;  ///< of conv_int8
};

/// An operation with everything it needs to run again.
class Primitive {
 public:
  virtual ~Primitive() = default;

  /// Throws BackendError.
  virtual void run(const CpuContext& context, const Operands& operands) = 0;
  /// The required layout of the second operand if the key is `packed`; else null.
  virtual std::shared_ptr<const kernels::WeightLayout> layout() const { return nullptr; }
  /// The same of conv_int8; null: [K, R, S, C / groups].
  virtual std::shared_ptr<const kernels::Int8Layout> int8_layout() const { return nullptr; }
};

/// A new primitive with the name of its code, which is the library's where a library has several; null if
/// there is no code for the key.
struct MadePrimitive {
  std::unique_ptr<Primitive> primitive;
  std::string implementation;
};

/// One that prepares nothing: run(context, key, operands). Its name is that of `key.by`.
MadePrimitive made_of(const PrimitiveKey& key,
                      void (*run)(const CpuContext&, const PrimitiveKey&, const Operands&));

/// Sets of activations: those of an implementation, which computes them as the last step.
using Activations = unsigned;
constexpr Activations set_of(Activation activation) {
  return 1u << static_cast<unsigned>(activation);
}
constexpr Activations kOnlyRelu = set_of(Activation::relu);

/// One way to compute an operation: an entry of the lists of conv_list.cpp and matmul.cpp.
struct Implementation {
  std::string_view name;  ///< that of a ConvImpl or MatmulImpl, if callers can name it
  /// What it does if a key says so. A key never says more: its caller does the rest. Only `sums` and `pooled`
  /// cannot be done by a caller.
  Fused fuses;
  Activations activations = 0;  ///< of those that a key may say, beside `none`
  /// Whether it supports the key's sizes and dtypes on this CPU.
  bool (*fits)(const PrimitiveKey& key);
  /// Of a key that fits. May find that there is no code after all.
  MadePrimitive (*make)(const PrimitiveKey& key);
  /// What a key lacks that does not fit, for the error: "the direct code needs AVX2". Null if no caller can
  /// name it, or it supports everything.
  std::string (*needs)(const PrimitiveKey& key) = nullptr;
};

/// An entry, and the cases of those that fit in which it comes before the entries after it; null: all.
struct ListEntry {
  const Implementation* implementation;
  bool (*prefers)(const PrimitiveKey& key) = nullptr;
};

}  // namespace athanor::cpu
