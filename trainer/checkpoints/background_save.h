#pragma once

#include <exception>
#include <functional>
#include <thread>

#include "dist/gather_state.h"
#include "tensor/state_dict.h"

namespace athanor {

/// Saves a host copy of a state on a separate thread while training continues. Reuses the copy's memory for
/// the next one.
class BackgroundSave {
 public:
  BackgroundSave() = default;
  /// Waits for a save in progress.
  ~BackgroundSave();
  BackgroundSave(const BackgroundSave&) = delete;
  BackgroundSave& operator=(const BackgroundSave&) = delete;

  /// Copies `state`, whose whole tensors `read` provides, and calls `write` with the copy. Waits for the
  /// previous save and throws as wait() does; then nothing has started.
  void start(const StateDict& state, const dist::ReadTensor& read,
             std::function<void(const StateDict&)> write);
  /// Waits for a save in progress. Throws what the last write threw, once.
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
