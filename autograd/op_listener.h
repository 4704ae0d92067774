#pragma once

#include <cstdint>
#include <span>

#include "tensor/tensor.h"

// What ops tell of themselves to a profiler. Nobody listens, as a rule: then it costs a look at a
// thread-local pointer for each op that is recorded and each node that runs backward.

namespace athanor {

/// Told of every op on its thread while a ListenScope lives. A call of the backward pass may lie in another
/// one: a checkpoint computes again what it did not keep.
class OpListener {
 public:
  /// An op has computed y of `inputs`, undefined where one was left out. It began when the one before ended,
  /// or when its layer was called. `layer`: the innermost module under way that has a name, or null.
  virtual void on_forward(const char* op, const char* layer, const Tensor& y,
                          std::span<const Tensor* const> inputs) = 0;
  /// The gradients of an op's inputs are about to be computed.
  virtual void before_backward(const char* op, const char* layer) = 0;
  /// They have been, of dy: `dx` has one for each input, undefined where none was asked for.
  virtual void on_backward(const char* op, const char* layer, const Tensor& dy,
                           std::span<const Tensor> dx) = 0;
  virtual void on_layer_begin(const char* layer) = 0;
  virtual void on_layer_end(const char* layer) = 0;
  /// A batch is there and prepared: what follows is ops.
  virtual void on_pass_begin() {}

 protected:
  ~OpListener() = default;
};

namespace detail {
extern constinit thread_local OpListener* op_listener;
extern constinit thread_local const char* current_layer;
}  // namespace detail

/// While alive, `listener` is told what this thread does; null: nobody.
class ListenScope {
 public:
  explicit ListenScope(OpListener* listener) : before_(detail::op_listener) {
    detail::op_listener = listener;
  }
  ~ListenScope() { detail::op_listener = before_; }
  ListenScope(const ListenScope&) = delete;
  ListenScope& operator=(const ListenScope&) = delete;

 private:
  OpListener* before_;
};

/// While alive, ops on this thread belong to `layer`, whose name must outlive the graph; null: nothing
/// changes.
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

 private:
  void begin();
  void end();

  const char* layer_;
  const char* outer_ = nullptr;
};

}  // namespace athanor
