#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/update.h"
#include "optim/arena.h"

namespace athanor {

/// The tables by which fused kernels find the parameters they update. They name the members that have a
/// gradient, and are rebuilt only when that set changes.
class UpdatePlan {
 public:
  struct Member {
    int parameter = 0;       ///< of the arena
    int group = 0;           ///< of StepState::learning_rate
    std::int64_t state = 0;  ///< offset in the optimizer's state tensors
    bool decay = true;
  };

  UpdatePlan(const ParameterArena& arena, std::vector<Member> members);

  std::span<const Member> members() const { return members_; }
  /// Updates each member has received, i64.
  const Tensor& steps() const { return steps_; }

  /// One table per part of the arena, naming the members that have a gradient now. Valid until the next call.
  std::span<const kernels::UpdateTable> refresh();
  /// The table of one active member alone. Allocates nothing but handles.
  kernels::UpdateTable table_of(int member) const;
  /// Whether a member had a gradient at the last refresh().
  bool active(int member) const { return active_[static_cast<std::size_t>(member)] != 0; }

 private:
  void rebuild();

  const ParameterArena& arena_;
  std::vector<Member> members_;
  std::vector<char> active_;
  std::vector<Tensor> staging_;  // per part, on the host
  std::vector<kernels::UpdateTable> tables_;
  std::vector<std::int64_t> first_range_;  // of each member in its part's table
  Tensor steps_;
  bool built_ = false;
};

}  // namespace athanor
