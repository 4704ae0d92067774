#include "nn/pretrained.h"

#include <utility>

#include "autograd/grad_mode.h"
#include "autograd/shape.h"
#include "nn/torch/foreign_names.h"
#include "nn/torch/torch_layout.h"
#include "tensor/base/error.h"

namespace athanor::nn {
namespace {

/// Whether the shapes differ only in their first dimension.
bool differ_in_classes(const Shape& a, const Shape& b) {
  if (a.rank() != b.rank() || a.rank() == 0 || a[0] == b[0]) return false;
  for (int i = 1; i < a.rank(); ++i) {
    if (a[i] != b[i]) return false;
  }
  return true;
}

}  // namespace

Pretrained load_pretrained(Module& model, const StateDict& weights, const PretrainedOptions& options) {
  WeightParts parts;
  const StateDict named = with_our_names(model, network_within(model, weights, options.averages, parts));
  const StateDict given = has_torch_layout(model, named) ? from_torch_layout(model, named) : named;
  const StateDict own = model.state_dict();
  const std::vector<Parameter> parameters = model.parameters();
  ATH_CHECK(!parameters.empty(), "pretrained: the model must have parameters");
  const std::string& last = parameters.back().name;
  const std::string head = last.substr(0, last.rfind('.') + 1);
  // The head is loaded as a whole, or not at all.
  Pretrained result;
  result.parts = std::move(parts.names);
  result.averaged = parts.averaged;
  std::int64_t of_head = 0;
  for (const Parameter& parameter : parameters) {
    if (!parameter.name.starts_with(head)) continue;
    ++of_head;
    const StateDict::Value* value = given.find(parameter.name);
    const Tensor* theirs = value ? std::get_if<Tensor>(value) : nullptr;
    const bool differs = theirs && differ_in_classes(theirs->shape(), parameter.tensor.shape());
    if (theirs && theirs->rank() > 0) result.classes = theirs->shape()[0];
    if (differs || options.reset_head) result.fresh.push_back(parameter.name);
  }
  if (head.empty() || std::ssize(result.fresh) != of_head) result.fresh.clear();
  if (result.fresh.empty()) result.classes = 0;

  const NoGrad no_grad;
  StateDict state;
  for (const std::string& name : result.fresh)
    state.set(name, clone(std::get<Tensor>(*own.find(name)).detach()));
  for (const StateDict::Entry& entry : given) {
    if (state.contains(entry.name)) continue;
    state.set(entry.name, entry.value);
    ++result.loaded;
  }
  model.load_state_dict(state);
  return result;
}

}  // namespace athanor::nn
