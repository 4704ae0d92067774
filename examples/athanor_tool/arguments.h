#pragma once

#include <array>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "autograd/engine.h"
#include "autograd/parameter.h"
#include "examples/athanor_tool/run_op.h"
#include "tensor/base/nearest.h"

namespace athanor::tool {

/// The inputs and attributes for an entry of the op table. Records which names were read, so that a misspelt
/// attribute is an error and gradients are known by name.
class Arguments {
 public:
  Arguments(const OpCall& call, Device device, std::string impl)
      : call_(call), device_(device), impl_(std::move(impl)), differentiate_(call.tensors.contains("dy")) {}

  /// An input; floating ones that are not constant collect a gradient if dy is given.
  Tensor in(const std::string& name) {
    const Tensor x = call_.tensors.tensor(name).to(device_);
    if (differentiate_ && is_floating(x.dtype()) && !call_.constants.contains(name)) {
      require_grad(x);
      differentiable_.push_back({"d" + name, x});
    }
    return x;
  }
  /// An optional input: undefined if missing.
  Tensor optional(const std::string& name) { return call_.tensors.contains(name) ? in(name) : Tensor(); }
  /// An optional input without a gradient.
  Tensor constant(const std::string& name) {
    return call_.tensors.contains(name) ? call_.tensors.tensor(name).to(device_) : Tensor();
  }
  /// An input the op writes to.
  Tensor buffer(const std::string& name) {
    buffers_.push_back({name, call_.tensors.tensor(name).to(device_)});
    return buffers_.back().tensor;
  }

  /// Whether an attribute is given: for attributes without a default.
  bool given(const std::string& name) const { return call_.attributes.contains(name); }
  template <class T> T attribute(const std::string& name, T fallback) {
    known_.insert(name);
    const auto at = call_.attributes.find(name);
    if (at == call_.attributes.end()) return fallback;
    try {
      const T value = at->template get<T>();
      // JSON converts silently: 1.5 to 1, three sizes to two.
      if (std::is_floating_point_v<T> || nlohmann::json(value) == *at) return value;
    } catch (const nlohmann::json::exception&) {
    }
    detail::fail<>("{}: attribute '{}' must be like {}, but is {}", call_.op, name,
                   nlohmann::json(fallback).dump(), at->dump());
  }
  /// Two sizes, along H and W.
  void pair(const std::string& name, std::int64_t (&value)[2]) {
    const auto read = attribute(name, std::array<std::int64_t, 2>{value[0], value[1]});
    value[0] = read[0];
    value[1] = read[1];
  }
  /// An attribute with one of a few names.
  template <class E>
  E choice(const std::string& name, std::initializer_list<std::pair<const char*, E>> choices) {
    return chosen(attribute<std::string>(name, choices.begin()->first), "attribute '" + name + "'", choices);
  }
  /// --impl, for ops that have a choice.
  template <class Impl> Impl impl() {
    impl_used_ = true;
    return chosen<Impl>(
        impl_, "--impl",
        {{"automatic", Impl::automatic}, {"reference", Impl::reference}, {"vendor", Impl::vendor}});
  }

  /// Throws if the call contains an unused tensor or attribute.
  void require_all_used() const {
    const std::vector<std::string> known(known_.begin(), known_.end());
    for (const auto& [name, value] : call_.attributes.items()) {
      ATH_CHECK(known_.count(name) != 0, "{}: has no attribute '{}'{}", call_.op, name,
                did_you_mean(name, known));
    }
    ATH_CHECK(impl_used_ || impl_ == "automatic",
              "{}: --impl must be automatic, because the op has one implementation, but is {}", call_.op,
              impl_);
    if (differentiate_) call_.tensors.tensor("dy");
    call_.tensors.require_all_used(call_.op);
  }

  const std::vector<NamedTensor>& differentiable() const { return differentiable_; }
  const std::vector<NamedTensor>& buffers() const { return buffers_; }

 private:
  template <class E>
  E chosen(const std::string& value, const std::string& what,
           std::initializer_list<std::pair<const char*, E>> choices) const {
    std::vector<std::string> names;
    for (const auto& [name, result] : choices) {
      if (value == name) return result;
      names.emplace_back(name);
    }
    detail::fail<>("{}: {} must be {}, but is '{}'", call_.op, what, fmt::join(names, ", "), value);
  }

  const OpCall& call_;
  Device device_;
  std::string impl_;
  bool differentiate_;
  bool impl_used_ = false;
  std::set<std::string> known_;
  std::vector<NamedTensor> differentiable_;
  std::vector<NamedTensor> buffers_;
};

}  // namespace athanor::tool
