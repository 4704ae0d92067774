#include "autograd/op_trace.h"

namespace athanor {

void OpTrace::recorded(const OpCall& op, const Tensor& y, std::span<const Input> inputs) {
  TracedOp& traced = ops_.emplace_back(TracedOp{op.name, {y}, {}, {}});
  for (const Input& other : op.others) traced.outputs.push_back(*other.tensor);
  for (const Input& input : inputs) traced.inputs.push_back(*input.tensor);
  for (const OpAttribute& attribute : op.attributes) {
    TracedAttribute& copy = traced.attributes.emplace_back(TracedAttribute{attribute.name, {}});
    for (const OpNumber& number : attribute.numbers) copy.values.push_back(number.value);
  }
}

}  // namespace athanor
