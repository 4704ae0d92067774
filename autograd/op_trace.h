#pragma once

#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "tensor/tensor.h"

// What ops report to a trace on their thread: for export_onnx(). Each differentiable op has one line for it,
//
//     if (OpTrace* const trace = op_trace()) trace->add("softmax", {y}, {x}, {{"axis", {axis}}});
//
// which costs one test of a thread-local pointer without a trace. An op composed of others has none.

namespace athanor {

/// A number of an attribute. Integers are exact up to 2^53.
struct TracedNumber {
  double value;
  template <class T>
  requires(std::is_arithmetic_v<T> || std::is_enum_v<T>) TracedNumber(T number)
      : value(static_cast<double>(number)) {}  // NOLINT: written as a plain list of numbers
};

struct TracedAttribute {
  std::string_view name;  ///< must have static lifetime
  std::vector<TracedNumber> values;
};

/// One call of an op.
struct TracedOp {
  std::string_view name;
  std::vector<Tensor> outputs;
  std::vector<Tensor> inputs;  ///< as given, undefined if omitted
  std::vector<TracedAttribute> attributes;
  bool is_reported = true;  ///< false: the op does not report itself, and only its output is known
};

/// The memory of a tensor's elements: the identity of a value in a graph of ops. A trace keeps its tensors
/// alive, so two of its values share a place only if they are equal views of one tensor.
struct TensorPlace {
  const std::byte* data;
  Shape shape;
  Strides strides;

  explicit TensorPlace(const Tensor& x) : data(x.raw_data()), shape(x.shape()), strides(x.strides()) {}
  bool operator==(const TensorPlace& other) const {
    return data == other.data && shape == other.shape && strides == other.strides;
  }
};

/// Collects the calls of ops on this thread, in order, until destroyed. Gradients must be off (NoGrad): only
/// then are ops noticed that do not report themselves. Throws ArgumentError if gradients are on or this
/// thread already has a trace.
class OpTrace {
 public:
  OpTrace();
  ~OpTrace();
  OpTrace(const OpTrace&) = delete;
  OpTrace& operator=(const OpTrace&) = delete;

  void add(std::string_view name, std::vector<Tensor> outputs, std::vector<Tensor> inputs,
           std::vector<TracedAttribute> attributes = {});
  /// Records that an op has made y, if it has not reported itself.
  void made(std::string_view name, const Tensor& y);

  const std::vector<TracedOp>& ops() const { return ops_; }

 private:
  std::vector<TracedOp> ops_;
};

namespace detail {
extern constinit thread_local OpTrace* active_trace;
}  // namespace detail

/// The active trace of this thread, or null.
inline OpTrace* op_trace() {
  return detail::active_trace;
}

}  // namespace athanor
