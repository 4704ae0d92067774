#pragma once

#include <string_view>
#include <vector>

#include "autograd/op_observer.h"

namespace athanor {

struct TracedAttribute {
  std::string_view name;
  std::vector<double> values;
};

/// One call of an op.
struct TracedOp {
  std::string_view name;
  std::vector<Tensor> outputs;
  std::vector<Tensor> inputs;  ///< as given, undefined if omitted
  std::vector<TracedAttribute> attributes;
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

/// Collects the calls of ops on this thread, in order, while it is alive.
class OpTrace final : private OpObserver {
 public:
  const std::vector<TracedOp>& ops() const { return ops_; }

 private:
  void recorded(const OpCall& op, const Tensor& y, std::span<const Input> inputs) override;
  bool needs_single_ops() const override { return true; }

  std::vector<TracedOp> ops_;
  ObserveScope scope_{*this};
};

/// Whether a trace collects the ops of this thread, which must then run as those that a model can consist of.
inline bool op_trace() {
  return ObserveScope::any([](const OpObserver& observer) { return observer.needs_single_ops(); });
}

}  // namespace athanor
