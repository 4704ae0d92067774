#pragma once

#include <initializer_list>
#include <span>
#include <type_traits>
#include <utility>

#include "tensor/tensor.h"

// What ops report of themselves, and to whom: a profiler, a trace for the ONNX export, checks for NaN. An op
// makes one call, record() (autograd/node.h); it notifies every observer of its thread. Without one, this
// costs a test of a thread-local pointer for each recorded op and each node of the backward pass.

namespace athanor {

/// A number of an attribute. Integers are exact up to 2^53.
struct OpNumber {
  double value = 0;

  OpNumber() = default;
  template <class T>
  requires(std::is_arithmetic_v<T> || std::is_enum_v<T>) OpNumber(T number)
      : value(static_cast<double>(number)) {}  // NOLINT: written as a plain list of numbers
};

/// An argument of an op beside its tensors, such as an axis. It views its numbers.
struct OpAttribute {
  const char* name;  ///< must have static lifetime
  std::span<const OpNumber> numbers;

  OpAttribute(const char* given, std::initializer_list<OpNumber> list)
      : name(given), numbers(list.begin(), list.size()) {}
  OpAttribute(const char* given, std::span<const OpNumber> list) : name(given), numbers(list) {}
};

/// An input of an op; undefined if omitted (a missing bias).
struct Input {
  const Tensor* tensor;
  bool has_gradient = true;

  Input(const Tensor& t) : tensor(&t) {}  // NOLINT: written as a plain list of tensors
  /// One that never gets a gradient, such as an index. The numbering of gradients skips it.
  static Input fixed(const Tensor& t) {
    Input input(t);
    input.has_gradient = false;
    return input;
  }
};

/// A call of an op, beside its inputs and its result: `"relu"`, or `{"softmax", {{"axis", {axis}}}}`. A view
/// for the duration of record().
struct OpCall {
  const char* name;  ///< must have static lifetime
  std::initializer_list<OpAttribute> attributes;
  std::initializer_list<Input> others;  ///< results beside the first; they have no gradients
  bool has_gradient = true;             ///< false: no input can get one, as of a comparison

  OpCall(const char* op, std::initializer_list<OpAttribute> given = {},
         std::initializer_list<Input> other_results = {})
      : name(op), attributes(given), others(other_results) {}
};

/// Notified of every op on its thread while an ObserveScope is alive. Calls of a backward pass may nest: a
/// checkpoint recomputes what it did not save.
class OpObserver {
 public:
  /// An op has computed y from `inputs`. It began when the previous op ended or its layer was called.
  virtual void recorded(const OpCall& /*op*/, const Tensor& /*y*/, std::span<const Input> /*inputs*/) {}
  /// The gradients of an op's inputs are about to be computed. `layer`: the innermost named module whose call
  /// recorded the op, or null.
  virtual void backward_began(const char* /*op*/, const char* /*layer*/) {}
  /// They have been computed from dy: `dx` has one per input, undefined if not needed.
  virtual void backward_ended(const char* /*op*/, const char* /*layer*/, const Tensor& /*dy*/,
                              std::span<const Tensor> /*dx*/) {}
  /// The gradient of an op's input is about to be added to those of other ops.
  virtual void contributed(const char* /*op*/, int /*input*/, const Tensor& /*dx*/) {}
  virtual void layer_began(const char* /*layer*/) {}
  virtual void layer_ended(const char* /*layer*/) {}
  /// A batch has been loaded and prepared; ops follow.
  virtual void pass_began() {}

  /// Whether contributed() must see each gradient in a tensor of its own, before any sum, and recorded() the
  /// values of each result.
  virtual bool needs_each_gradient() const { return false; }
  /// Whether ops that compute what several layers call must run as those layers' ops. If neither is asked
  /// for, the result of a norm may be one in name, with the memory of its input.
  virtual bool needs_single_ops() const { return false; }

 protected:
  ~OpObserver() = default;
};

/// While alive, `observer` is notified of the ops on this thread, before those whose scopes began earlier.
class ObserveScope {
 public:
  explicit ObserveScope(OpObserver& observer) : observer_(observer), next_(std::exchange(first_, this)) {}
  ~ObserveScope() {
    ObserveScope** at = &first_;
    while (*at && *at != this) at = &(*at)->next_;
    if (*at) *at = next_;
  }
  ObserveScope(const ObserveScope&) = delete;
  ObserveScope& operator=(const ObserveScope&) = delete;

  /// Whether this thread has an observer.
  static bool active() { return first_; }
  /// Calls f(observer) for each observer of this thread.
  template <class F> static void for_each(const F& f) {
    for (ObserveScope* scope = first_; scope; scope = scope->next_) f(scope->observer_);
  }
  /// Whether f(observer) is true for one of them.
  template <class F> static bool any(const F& f) {
    bool found = false;
    for_each([&](const OpObserver& observer) { found = found || f(observer); });
    return found;
  }

 private:
  static constinit thread_local ObserveScope* first_;

  OpObserver& observer_;
  ObserveScope* next_;
};

/// While alive, ops on this thread belong to `layer`, whose name must outlive the graph; null has no effect.
class LayerScope {
 public:
  explicit LayerScope(const char* layer) : layer_(layer) {
    if (layer_) [[unlikely]]
      begin();
  }
  ~LayerScope() {
    if (layer_) [[unlikely]]
      end();
  }
  LayerScope(const LayerScope&) = delete;
  LayerScope& operator=(const LayerScope&) = delete;

  /// The innermost layer of this thread, or null.
  static const char* innermost() { return innermost_; }

 private:
  void begin();
  void end();

  static constinit thread_local const char* innermost_;

  const char* layer_;
  const char* outer_ = nullptr;
};

}  // namespace athanor
