#pragma once

#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "tensor/tensor.h"

// What ops tell of themselves while somebody on their thread listens: for export_onnx(). Each differentiable
// op has one line for it,
//
//     if (OpTrace* const trace = op_trace()) trace->add("softmax", {y}, {x}, {{"axis", {axis}}});
//
// which costs a look at a thread-local pointer where nobody does. An op that is made of others has none.

namespace athanor {

/// A number of an attribute. Integers are exact up to 2^53.
struct TracedNumber {
  double value;
  template <class T>
  requires(std::is_arithmetic_v<T> || std::is_enum_v<T>) TracedNumber(T number)
      : value(static_cast<double>(number)) {}  // NOLINT: written as a plain list of numbers
};

struct TracedAttribute {
  std::string_view name;  ///< lives as long as the program
  std::vector<TracedNumber> values;
};

/// One call of an op.
struct TracedOp {
  std::string_view name;
  std::vector<Tensor> outputs;
  std::vector<Tensor> inputs;  ///< as they were given, undefined where one was left out
  std::vector<TracedAttribute> attributes;
  bool told = true;  ///< false: the op has no line for it, and there is nothing but its output
};

/// Where a tensor's elements lie: what is one value in the sense of a graph of ops. Tensors of a trace live
/// as long as it, so no two of its values lie in one place, but for views of one that are equal.
struct TensorPlace {
  const std::byte* data;
  Shape shape;
  Strides strides;

  explicit TensorPlace(const Tensor& x) : data(x.raw_data()), shape(x.shape()), strides(x.strides()) {}
  bool operator==(const TensorPlace& other) const {
    return data == other.data && shape == other.shape && strides == other.strides;
  }
};

/// Collects the calls of ops on this thread, in their order, until it ends. Gradients must be off (NoGrad),
/// for then the ops that do not tell are noticed. Throws ArgumentError where they are on, or a trace is under
/// way.
class OpTrace {
 public:
  OpTrace();
  ~OpTrace();
  OpTrace(const OpTrace&) = delete;
  OpTrace& operator=(const OpTrace&) = delete;

  void add(std::string_view name, std::vector<Tensor> outputs, std::vector<Tensor> inputs,
           std::vector<TracedAttribute> attributes = {});
  /// An op has made y; of one that has not said so, all that is known.
  void made(std::string_view name, const Tensor& y);

  const std::vector<TracedOp>& ops() const { return ops_; }

 private:
  std::vector<TracedOp> ops_;
};

namespace detail {
extern constinit thread_local OpTrace* active_trace;
}  // namespace detail

/// The trace under way on this thread, or null.
inline OpTrace* op_trace() {
  return detail::active_trace;
}

}  // namespace athanor
