#include "autograd/op_trace.h"

#include "autograd/grad_mode.h"

namespace athanor {

constinit thread_local OpTrace* detail::active_trace = nullptr;

OpTrace::OpTrace() {
  ATH_CHECK(!op_trace(), "OpTrace: a thread must have at most one, but another is active");
  ATH_CHECK(!grad_enabled(), "OpTrace: gradients must be off, but are on; put NoGrad before it");
  detail::active_trace = this;
}

OpTrace::~OpTrace() {
  detail::active_trace = nullptr;
}

void OpTrace::add(std::string_view name, std::vector<Tensor> outputs, std::vector<Tensor> inputs,
                  std::vector<TracedAttribute> attributes) {
  ops_.push_back({name, std::move(outputs), std::move(inputs), std::move(attributes), true});
}

void OpTrace::made(std::string_view name, const Tensor& y) {
  if (!ops_.empty() && ops_.back().is_reported && ops_.back().name == name) {
    for (const Tensor& output : ops_.back().outputs) {
      if (TensorPlace(output) == TensorPlace(y)) return;
    }
  }
  ops_.push_back({name, {y}, {}, {}, false});
}

}  // namespace athanor
