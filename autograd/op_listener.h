#pragma once

#include <cstdint>
#include <span>

#include "autograd/node.h"

// What ops report to a profiler. Without a listener this costs one test of a thread-local pointer for each
// recorded op and each node of the backward pass.

namespace athanor {

/// Notified of every op on its thread while a ListenScope is alive. Calls of a backward pass may nest: a
/// checkpoint recomputes what it did not save.
class OpListener {
 public:
  /// An op has computed y from `inputs`, with undefined tensors for omitted ones. It began when the previous
  /// op ended or its layer was called. `layer`: the innermost named module being called, or null.
  virtual void on_forward(const char* op, const char* layer, const Tensor& y,
                          std::span<const Tensor* const> inputs) = 0;
  /// The gradients of an op's inputs are about to be computed.
  virtual void before_backward(const char* op, const char* layer) = 0;
  /// They have been computed from dy: `dx` has one per input, undefined if not needed.
  virtual void on_backward(const char* op, const char* layer, const Tensor& dy,
                           std::span<const Tensor> dx) = 0;
  virtual void on_layer_begin(const char* layer) = 0;
  virtual void on_layer_end(const char* layer) = 0;
  /// A batch has been loaded and prepared; ops follow.
  virtual void on_pass_begin() {}

 protected:
  ~OpListener() = default;
};

/// While alive, notifies `listener` of the ops on this thread; null: no listener.
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

 private:
  void begin();
  void end();

  const char* layer_;
  const char* outer_ = nullptr;
};

}  // namespace athanor
