#pragma once

#include <string>
#include <vector>

#include "trainer/callback.h"
#include "trainer/checkpoints/run_state.h"

namespace athanor {

/// The callbacks of a run.
struct Observers {
  Trainer& trainer;
  const Callbacks& callbacks;
  bool hidden = false;  ///< in trial steps, of which callbacks learn nothing

  /// notify(&Callback::on_epoch_end, report)
  template <class... P, class... A>
  void notify(void (Callback::*event)(Trainer&, P...), const A&... arguments) const {
    if (hidden) return;
    for (const auto& callback : callbacks) (*callback.*event)(trainer, arguments...);
  }
  void note(const std::string& line) const {
    if (!line.empty()) notify(&Callback::on_note, line);
  }
  /// Throws ArgumentError on names that are unfit or occur twice.
  std::vector<StatePart> state_parts() const;
};

}  // namespace athanor
