#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "autograd/parameter.h"
#include "nn/init.h"
#include "tensor/state_dict.h"
#include "tensor/tensor.h"

namespace athanor::nn {

class Module;

/// A module in a tree, with its dotted name; the root's is "".
struct NamedModule {
  std::string name;
  const Module* module;
};

/// Gives each parameter of a module its random stream for initialisation.
class InitKeys {
 public:
  InitKeys(std::uint64_t seed, std::string prefix) : seed_(seed), prefix_(std::move(prefix)) {}
  /// `name` as registered with the module.
  RandomKey operator()(std::string_view name) const {
    return parameter_key(seed_, fmt::format("{}{}", prefix_, name));
  }

 private:
  std::uint64_t seed_;
  std::string prefix_;
};

/// A part of a model: named parameters, buffers and child modules.
///
/// Children are plain members, registered by reference in the constructor, so a module can be neither copied
/// nor moved. A new model has shapes but no values: call initialize() or load_state_dict() before the first
/// forward pass. A parameter's initial value depends on the seed and its full name in the model.
///
///     struct Net : nn::Module {
///       nn::Conv2d conv{1, 8, 3};
///       nn::Linear head{8, 10};
///       Net() { register_module("conv", conv); register_module("head", head); }
///       Tensor forward(const Tensor& x) override { ... }
///     };
class Module {
 public:
  Module() = default;
  virtual ~Module() = default;
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;

  virtual Tensor forward(const Tensor& x) = 0;
  /// forward(x). Throws ArgumentError if this module's parameters have no values yet.
  Tensor operator()(const Tensor& x) {
    about_to_run();
    if (keeps_f32_ || layer_) [[unlikely]]
      return call_named(x);
    return forward(x);
  }

  /// Calls `hook` at the beginning of every call of this module, before it reads the parameters registered
  /// here (not those of children). An empty hook removes it.
  void before_call(std::function<void()> hook) { before_call_ = std::move(hook); }

  /// Sets every parameter and buffer of the tree to its initial value.
  void initialize(std::uint64_t seed);

  /// Training or evaluation behaviour (batch norm, dropout) of the whole tree except frozen modules;
  /// initially training.
  void train(bool on = true);
  void eval() { train(false); }
  bool training() const { return training_; }

  /// Excludes this module and all below it from training. Parameters need no gradient, and modules stay in
  /// evaluation mode whatever train() says, so batch norms keep their statistics. unfreeze() undoes this and
  /// switches to training mode. Freezing a tied weight freezes it everywhere. Freeze before a run (a
  /// Trainer's fit()), which determines at its start what it trains.
  void freeze();
  void unfreeze();
  bool frozen() const { return frozen_; }

  /// Trainable tensors in declared order: own ones, then the children's. Frozen ones are included, without
  /// require_grad(). Names are dotted paths ("layer1.0.conv1.weight"). A tied weight is listed once, under
  /// its first name.
  std::vector<Parameter> parameters() const;
  /// State tensors that are not trained, such as running statistics. Order and names as above.
  std::vector<NamedTensor> buffers() const;
  /// The buffers that belong only to frozen modules: they do not change.
  std::vector<NamedTensor> frozen_buffers() const;
  /// This module and all below it, parents first.
  std::vector<NamedModule> modules() const;
  /// Gives this module and all below it their dotted names for a profiler (autograd/op_observer.h), or
  /// removes them. Ops of a call, and their gradients, then report their layer. The root has no name.
  void name_layers(bool on);
  /// Calls visit(module, its own parameters) for this module and all below it, parents first. Tied parameters
  /// appear with each module that has them.
  void for_each_module(const std::function<void(Module&, const std::vector<Parameter>&)>& visit);
  /// Sets Parameter::lr_scale of all parameters here and below, by their names in parameters(). Call it
  /// before an arena takes over the parameters.
  void scale_learning_rates(const std::function<float(const std::string& name)>& scale);
  /// Number of elements of all parameters.
  std::int64_t parameter_count() const;

  /// Handles to all parameters and buffers, in that order; values are not copied.
  StateDict state_dict() const;
  /// Copies values in, converting between floating dtypes. Checks everything before it writes: throws
  /// ArgumentError naming every entry that is missing, unknown or of the wrong shape, and then changes
  /// nothing.
  void load_state_dict(const StateDict& state);

  /// Computes this module and all below it in f32 whatever the precision of the rest. Parameters stay f32; an
  /// input of a half type is widened, and the result rounded back to that type. Call it before an arena takes
  /// over the parameters.
  void keep_f32(bool on = true);

  /// Moves parameters and buffers to another device, before an arena takes them over. Gradients are dropped.
  void to(Device device);
  /// Converts parameters and buffers to another floating dtype, before an arena takes them over. For a half
  /// type, norms and modules with keep_f32() stay f32.
  void to(DType dtype);

 protected:
  struct ParameterOptions {
    bool keep_f32 = false;
    bool decay = true;
  };
  /// Makes the tensor a leaf and returns its handle. A name must be unique here, nonempty and without dots; a
  /// tensor registered by another module too is tied. Throws ArgumentError.
  Tensor register_parameter(const std::string& name, Tensor tensor, ParameterOptions options);
  Tensor register_parameter(const std::string& name, Tensor tensor) {
    return register_parameter(name, std::move(tensor), {});
  }
  Tensor register_buffer(const std::string& name, Tensor tensor);
  /// Makes the module a child, which train(), eval() and all others here reach. It must outlive this one.
  template <class M> M& register_module(const std::string& name, M& module) {
    add_child(name, module);
    return module;
  }

  /// Writes initial values to the parameters and buffers registered here (not those of children).
  virtual void reset(const InitKeys&) {}
  /// Marks the parameters registered here as having no values until initialize() or load_state_dict().
  void needs_values() { ready_ = false; }
  /// Whether keep_f32() is on.
  bool keeps_f32() const { return keeps_f32_; }
  /// Its name while layers are named, else null. For a LayerScope in functions other than forward(x).
  const char* layer_name() const { return layer_; }
  /// Checks that there are values, and runs the hook of before_call(); for functions other than forward(x)
  /// that read parameters.
  void about_to_run() const {
    if (!ready_) [[unlikely]]
      not_ready();
    if (before_call_) [[unlikely]]
      before_call_();
  }

 private:
  struct Child {
    std::string name;
    Module* module;
  };

  void make_leaf(const Parameter& own) const;
  void add_child(const std::string& name, Module& module);
  void check_name(const std::string& name) const;
  [[noreturn]] void not_ready() const;
  Tensor call_named(const Tensor& x);
  Tensor forward_in_f32(const Tensor& x);
  /// visit(prefix, module) for this module and all below it; prefix is "" or ends with a dot.
  template <class M, class F> static void walk(M& module, const std::string& prefix, F&& visit);

  std::vector<Parameter> parameters_;
  std::vector<NamedTensor> buffers_;
  std::vector<Child> children_;
  std::function<void()> before_call_;
  const char* layer_ = nullptr;
  bool training_ = true;
  bool frozen_ = false;
  bool ready_ = true;
  bool keeps_f32_ = false;
};

}  // namespace athanor::nn
