#include "nn/module.h"

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <typeinfo>

#include <cxxabi.h>

#include "autograd/engine.h"
#include "autograd/op_observer.h"
#include "autograd/shape.h"
#include "kernels/copy.h"
#include "kernels/on_device.h"
#include "tensor/base/nearest.h"
#include "tensor/base/trace.h"

namespace athanor::nn {
namespace {

template <class Named> bool holds(const std::vector<Named>& list, const Tensor& tensor) {
  return std::any_of(list.begin(), list.end(), [&](const Named& one) { return one.tensor.same_as(tensor); });
}

/// "athanor::nn::Linear".
std::string type_of(const Module& module) {
  const char* const mangled = typeid(module).name();
  const std::unique_ptr<char, decltype(&std::free)> type(
      abi::__cxa_demangle(mangled, nullptr, nullptr, nullptr), &std::free);
  return type ? type.get() : mangled;
}

/// "'weight' [8, 3] of athanor::nn::Linear".
std::string describe(const Parameter& own, const Module& module) {
  return fmt::format("'{}' {} of {}", own.name, own.tensor.shape(), type_of(module));
}

// "missing 'a', 'b'": adds one kind of mismatch of a state to the message.
void complain(std::string& text, const char* what, const std::vector<std::string>& names,
              const std::vector<std::string>& candidates) {
  if (names.empty()) return;
  text += fmt::format("{}{} {}", text.empty() ? "" : "; ", what, list_names(names));
  if (const auto nearest = nearest_name(names.front(), candidates))
    text += fmt::format(" (for '{}' did you mean '{}'?)", names.front(), *nearest);
}

}  // namespace

template <class M, class F> void Module::walk(M& module, const std::string& prefix, F&& visit) {
  visit(prefix, module);
  for (const Child& child : module.children_)
    walk(static_cast<M&>(*child.module), prefix + child.name + ".", visit);
}

// Registration ---------------------------------------------------------------------------------------------

void Module::check_name(const std::string& name) const {
  ATH_CHECK(!name.empty() && name.find('.') == name.npos,
            "module: a name must not be empty or hold a dot, "
            "but got '{}'",
            name);
  const auto is_taken = [&](const auto& list) {
    return std::any_of(list.begin(), list.end(), [&](const auto& one) { return one.name == name; });
  };
  ATH_CHECK(!is_taken(parameters_) && !is_taken(buffers_) && !is_taken(children_),
            "module: names must be unique, but '{}' is taken", name);
}

Tensor Module::register_parameter(const std::string& name, Tensor tensor, ParameterOptions options) {
  check_name(name);
  ATH_CHECK(tensor.defined(), "module: parameter '{}' must be a defined tensor", name);
  parameters_.push_back({name, tensor, options.keep_f32, options.decay});
  make_leaf(parameters_.back());
  return tensor;
}

void Module::make_leaf(const Parameter& own) const {
  Leaf& leaf = leaf_of(require_grad(own.tensor));
  if (leaf.owner.empty()) leaf.owner = describe(own, *this);
}

Tensor Module::register_buffer(const std::string& name, Tensor tensor) {
  check_name(name);
  ATH_CHECK(tensor.defined() && !tensor.requires_grad(),
            "module: buffer '{}' must be a defined tensor that needs no gradient", name);
  buffers_.push_back({name, tensor});
  return tensor;
}

void Module::add_child(const std::string& name, Module& module) {
  check_name(name);
  ATH_CHECK(&module != this, "module: '{}' must not be its own child", name);
  children_.push_back({name, &module});
}

// The tree -------------------------------------------------------------------------------------------------

void Module::initialize(std::uint64_t seed) {
  walk(*this, "", [&](const std::string& prefix, Module& module) {
    module.reset(InitKeys(seed, prefix));
    module.ready_ = true;
  });
}

void Module::for_each_module(const std::function<void(Module&, const std::vector<Parameter>&)>& visit) {
  walk(*this, "", [&](const std::string&, Module& module) { visit(module, module.parameters_); });
}

void Module::scale_learning_rates(const std::function<float(const std::string& name)>& scale) {
  walk(*this, "", [&](const std::string& prefix, Module& module) {
    for (Parameter& own : module.parameters_) own.lr_scale = scale(prefix + own.name);
  });
}

void Module::not_ready() const {
  detail::fail<>(
      "module: parameters must have values before the first call, but {} has none yet; call initialize(seed) "
      "or load_state_dict() on the whole model first, with every module registered in its parent: "
      "register_module(NAME, MODULE)",
      parameters_.empty() ? type_of(*this) : describe(parameters_.front(), *this));
}

void Module::name_layers(bool on) {
  walk(*this, "", [on](const std::string& prefix, Module& module) {
    module.layer_ = on && !prefix.empty()
                        ? interned_name(std::string_view(prefix).substr(0, prefix.size() - 1))
                        : nullptr;
  });
}

Tensor Module::call_named(const Tensor& x) {
  const LayerScope named(layer_);
  return keeps_f32_ ? forward_in_f32(x) : forward(x);
}

void Module::train(bool on) {
  walk(*this, "", [&](const std::string&, Module& module) { module.training_ = on && !module.frozen_; });
}

void Module::freeze() {
  walk(*this, "", [](const std::string&, Module& module) {
    module.frozen_ = true;
    module.training_ = false;
    for (const Parameter& own : module.parameters_) forget_grad(own.tensor);
  });
}

void Module::unfreeze() {
  walk(*this, "", [](const std::string&, Module& module) {
    module.frozen_ = false;
    module.training_ = true;
    for (const Parameter& own : module.parameters_) module.make_leaf(own);
  });
}

std::vector<Parameter> Module::parameters() const {
  std::vector<Parameter> all;
  walk(*this, "", [&](const std::string& prefix, const Module& module) {
    for (const Parameter& own : module.parameters_) {
      if (holds(all, own.tensor)) continue;
      all.push_back(
          {prefix + own.name, own.tensor, own.keep_f32 || module.keeps_f32_, own.decay, own.lr_scale});
    }
  });
  return all;
}

std::vector<NamedTensor> Module::buffers() const {
  std::vector<NamedTensor> all;
  walk(*this, "", [&](const std::string& prefix, const Module& module) {
    for (const NamedTensor& own : module.buffers_) {
      if (!holds(all, own.tensor)) all.push_back({prefix + own.name, own.tensor});
    }
  });
  return all;
}

std::vector<NamedTensor> Module::frozen_buffers() const {
  std::vector<NamedTensor> all = buffers(), trained;
  walk(*this, "", [&](const std::string&, const Module& module) {
    if (!module.frozen_) trained.insert(trained.end(), module.buffers_.begin(), module.buffers_.end());
  });
  std::erase_if(all, [&](const NamedTensor& one) { return holds(trained, one.tensor); });
  return all;
}

std::vector<NamedModule> Module::modules() const {
  std::vector<NamedModule> all;
  walk(*this, "", [&](const std::string& prefix, const Module& module) {
    all.push_back({prefix.substr(0, prefix.empty() ? 0 : prefix.size() - 1), &module});
  });
  return all;
}

std::int64_t Module::parameter_count() const {
  std::int64_t count = 0;
  for (const Parameter& parameter : parameters()) count += parameter.tensor.numel();
  return count;
}

// State ----------------------------------------------------------------------------------------------------

StateDict Module::state_dict() const {
  StateDict state;
  for (const Parameter& parameter : parameters()) state.set(parameter.name, parameter.tensor);
  for (const NamedTensor& buffer : buffers()) state.set(buffer.name, buffer.tensor);
  return state;
}

void Module::load_state_dict(const StateDict& state) {
  const StateDict own = state_dict();
  std::vector<std::string> missing, unknown, misfits;
  for (const StateDict::Entry& entry : own) {
    const Tensor& target = std::get<Tensor>(entry.value);
    const StateDict::Value* value = state.find(entry.name);
    const Tensor* source = value ? std::get_if<Tensor>(value) : nullptr;
    if (!value) {
      missing.push_back(entry.name);
    } else if (!source) {
      misfits.push_back(fmt::format("'{}' must be a tensor, but is {}", entry.name, kind_of(*value)));
    } else if (source->shape() != target.shape()) {
      misfits.push_back(
          fmt::format("'{}' must have shape {}, but has {}", entry.name, target.shape(), source->shape()));
    } else if (source->dtype() != target.dtype() && !is_floating(source->dtype())) {
      misfits.push_back(fmt::format("'{}' must be floating, but is {}", entry.name, source->dtype()));
    }
  }
  for (const StateDict::Entry& entry : state) {
    if (!own.contains(entry.name)) unknown.push_back(entry.name);
  }
  std::string wrong;
  complain(wrong, "missing", missing, unknown);
  complain(wrong, "not in the model:", unknown, missing.empty() ? own.names() : missing);
  for (std::size_t i = 0; i < std::min<std::size_t>(misfits.size(), 5); ++i)
    wrong += (wrong.empty() ? "" : "; ") + misfits[i];
  if (misfits.size() > 5) wrong += fmt::format(" and {} more", misfits.size() - 5);
  ATH_CHECK(wrong.empty(), "load_state_dict: entries must match the model, but got: {}", wrong);

  for (const StateDict::Entry& entry : own) {
    const Tensor target = std::get<Tensor>(entry.value).detach();
    const Tensor source = std::get<Tensor>(*state.find(entry.name)).detach().to(target.device());
    on_device(target.device(), [&](auto& context) { kernels::copy(context, source, target); });
    target.bump_version();  // shared with the parameter
  }
  walk(*this, "", [](const std::string&, Module& module) { module.ready_ = true; });
}

void Module::keep_f32(bool on) {
  walk(*this, "", [on](const std::string&, Module& module) { module.keeps_f32_ = on; });
}

Tensor Module::forward_in_f32(const Tensor& x) {
  if (!is_half(x.dtype())) return forward(x);
  return cast(forward(cast(x, DType::f32)), x.dtype());
}

void Module::to(Device device) {
  const auto move = [device](const Tensor& tensor) {
    if (tensor.device() == device) return;
    const Tensor moved = tensor.detach().to(device);
    tensor.rebind(moved.storage(), moved.offset(), moved.dtype());
  };
  walk(*this, "", [&](const std::string&, const Module& module) {
    for (const Parameter& own : module.parameters_) {
      const bool wants_grad = own.tensor.requires_grad();
      if (wants_grad) forget_grad(own.tensor);
      move(own.tensor);
      if (wants_grad) module.make_leaf(own);
    }
  });
  for (const NamedTensor& buffer : buffers()) move(buffer.tensor);
}

void Module::to(DType dtype) {
  ATH_CHECK(is_floating(dtype), "module: dtype must be floating, but got {}", dtype);
  const auto convert = [](const Tensor& tensor, DType wanted) {
    if (tensor.dtype() == wanted || !is_floating(tensor.dtype())) return;
    tensor.rebind(cast(tensor.detach(), wanted).storage(), 0, wanted);
  };
  const DType kept = is_half(dtype) ? DType::f32 : dtype;
  for (const Parameter& parameter : parameters())
    convert(parameter.tensor, parameter.keep_f32 ? kept : dtype);
  for (const NamedTensor& buffer : buffers()) convert(buffer.tensor, kept);
}

}  // namespace athanor::nn
