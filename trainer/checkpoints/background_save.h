#pragma once

#include <exception>
#include <functional>
#include <thread>

#include "dist/gather_state.h"
#include "tensor/state_dict.h"

namespace athanor {

/// Saves a state from a copy of it in host memory, on a thread of its own, while training goes on. The copy's
/// memory is kept for the next one.
class BackgroundSave {
 public:
  BackgroundSave() = default;
  /// Waits for what is under way.
  ~BackgroundSave();
  BackgroundSave(const BackgroundSave&) = delete;
  BackgroundSave& operator=(const BackgroundSave&) = delete;

  /// Copies `state`, whose tensors `read` gives as a whole, and has `write` called with the copy. Waits for
  /// the save before this one, and throws as wait() does; then nothing has begun.
  void start(const StateDict& state, const dist::ReadTensor& read,
             std::function<void(const StateDict&)> write);
  /// Returns when nothing is under way. Throws what the last write threw, once.
  void wait();

 private:
  void join() {
    if (thread_.joinable()) thread_.join();
  }

  StateDict copy_;
  std::exception_ptr failure_;
  std::thread thread_;
};

}  // namespace athanor
