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

/// A module of a tree, with its dotted name; the root's is "".
struct NamedModule {
  std::string name;
  const Module* module;
};

/// Gives the random stream of a module's own parameters when they get their initial values.
class InitKeys {
 public:
  InitKeys(std::uint64_t seed, std::string prefix) : seed_(seed), prefix_(std::move(prefix)) {}
  /// `name` as it was registered with the module.
  RandomKey operator()(std::string_view name) const {
    return parameter_key(seed_, fmt::format("{}{}", prefix_, name));
  }

 private:
  std::uint64_t seed_;
  std::string prefix_;
};

/// A part of a model: parameters, buffers, and other modules, all under names.
///
/// Children are plain members, registered by reference in the constructor, so a module is neither copied nor
/// moved. A new model has shapes but no values: initialize() or load_state_dict() comes before the first
/// call. The initial value of a parameter is a function of the seed and its name in the whole model.
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
  /// forward(x). Throws ArgumentError where this module's parameters have no values yet.
  Tensor operator()(const Tensor& x) {
    if (!ready_) [[unlikely]]
      not_ready();
    about_to_run();
    if (keeps_f32_ || layer_) [[unlikely]]
      return call_named(x);
    return forward(x);
  }

  /// Has every call of this module begin with `hook`: whoever must do something before the parameters that
  /// are registered here are read. Children have their own. None ends that.
  void before_call(std::function<void()> hook) { before_call_ = std::move(hook); }

  /// Sets every parameter and buffer of the tree to its initial value.
  void initialize(std::uint64_t seed);

  /// Training or evaluation behaviour (batch norm, dropout) of the whole tree but of what is frozen; training
  /// at first.
  void train(bool on = true);
  void eval() { train(false); }
  bool training() const { return training_; }

  /// From now on nothing trains this module and all below it: parameters ask for no gradient, and it stays in
  /// evaluation, whatever train() says, so that batch norms' statistics stand still. unfreeze() takes all of
  /// that back, and begins training behaviour. A weight that is tied is tied in this, too. A run (a
  /// Trainer's fit()) decides when it begins what it trains: freeze before it.
  void freeze();
  void unfreeze();
  bool frozen() const { return frozen_; }

  /// Trainable tensors in declared order: own ones, then those of the children; frozen ones, too, which do
  /// not require_grad(). Names are dotted paths ("layer1.0.conv1.weight"). A tied weight is listed once,
  /// under its first name.
  std::vector<Parameter> parameters() const;
  /// Tensors that are state but not trained: running statistics. Order and names as above.
  std::vector<NamedTensor> buffers() const;
  /// Those of them that are in frozen modules alone: they stay as they are.
  std::vector<NamedTensor> frozen_buffers() const;
  /// This module and all below it, parents first.
  std::vector<NamedModule> modules() const;
  /// Gives this module and all below it their dotted names for a profiler (autograd/op_listener.h), or takes
  /// them away: ops of a call then know which layer they are in, and so do their gradients. The root has
  /// none.
  void name_layers(bool on);
  /// Calls visit(module, its own parameters) for this module and all below it, parents first. Tied parameters
  /// come with every module that has them.
  void for_each_module(const std::function<void(Module&, const std::vector<Parameter>&)>& visit);
  /// Elements of all parameters.
  std::int64_t parameter_count() const;

  /// Handles to all parameters and buffers, in that order: no values are copied.
  StateDict state_dict() const;
  /// Copies values in, between floating dtypes where they differ. Checks everything first, then writes:
  /// throws ArgumentError naming every entry that is missing, not known or of another shape, and changes
  /// nothing.
  void load_state_dict(const StateDict& state);

  /// Computes this module and all below it in f32 whatever the precision of the rest: parameters stay f32, an
  /// input of a half type is widened, and the result rounded back to that type. Call it before an arena takes
  /// the parameters over.
  void keep_f32(bool on = true);

  /// Lets convolutions and linear layers keep their weights as inference reads them: each in the layout of
  /// its kernel, with the batch norm behind a convolution multiplied into it (conv_norm_act(), nn/conv2d.h),
  /// made by the first call that asks and then shared by all threads. Begins evaluation. Calls in
  /// InferenceMode use it, on the CPU, of f32; their results differ by rounding alone, by less than 1e-5 of
  /// the largest logit, and a ReLU makes 0 of NaN. All other calls compute as ever. train(), initialize(),
  /// load_state_dict(), unfreeze(), keep_f32() and to() end it; weights must not change in another way. No
  /// other thread may be in a call while this begins or ends.
  void pack_weights();
  bool has_packed_weights() const { return packs_; }

  /// Moves parameters and buffers to another device, before an arena takes them over. Gradients stay behind:
  /// a parameter has none after it.
  void to(Device device);
  /// Converts parameters and buffers to another floating dtype, before an arena takes them over. Norms and
  /// what keep_f32() names stay f32 where the dtype is a half type.
  void to(DType dtype);

 protected:
  struct ParameterOptions {
    bool keep_f32 = false;
    bool decay = true;
  };
  /// Makes the tensor a leaf and returns its handle. Names must be unique here, not empty, without dots; a
  /// tensor that is another module's parameter, too, is tied to it. Throws ArgumentError.
  Tensor register_parameter(const std::string& name, Tensor tensor, ParameterOptions options);
  Tensor register_parameter(const std::string& name, Tensor tensor) {
    return register_parameter(name, std::move(tensor), {});
  }
  Tensor register_buffer(const std::string& name, Tensor tensor);
  template <class M> M& register_module(const std::string& name, M& module) {
    add_child(name, module);
    return module;
  }

  /// Writes the initial values of the parameters and buffers registered here (not of children).
  virtual void reset(const InitKeys&) {}
  /// Says that the parameters registered here have no values until initialize() or load_state_dict().
  void needs_values() { ready_ = false; }
  /// pack_weights() has begun, or ends: what was packed of the parameters registered here must go.
  virtual void on_pack() {}
  /// Its name while layers have names; else null. For a LayerScope in functions of a module besides
  /// forward(x).
  const char* layer_name() const { return layer_; }
  /// What a call begins with; for functions of a module besides forward(x) that read its parameters.
  void about_to_run() const {
    if (before_call_) [[unlikely]]
      before_call_();
  }

 private:
  struct Child {
    std::string name;
    Module* module;
  };

  void add_child(const std::string& name, Module& module);
  void check_name(const std::string& name) const;
  [[noreturn]] void not_ready() const;
  Tensor call_named(const Tensor& x);
  Tensor forward_in_f32(const Tensor& x);
  void set_packs(bool on);
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
  bool packs_ = false;
};

}  // namespace athanor::nn
