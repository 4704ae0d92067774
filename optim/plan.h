#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/update.h"
#include "optim/arena.h"

namespace athanor {

/// The tables by which fused kernels find the parameters they update. They name the members that have a
/// gradient, or those the caller asks for, and are rebuilt only when that set changes.
class UpdatePlan {
 public:
  struct Member {
    int parameter = 0;       ///< of the arena
    int group = 0;           ///< of StepState::learning_rate
    std::int64_t state = 0;  ///< offset in the optimizer's state tensors
    bool decay = true;
  };

  UpdatePlan(const ParameterArena& arena, std::vector<Member> members);
  /// Of all parameters of the arena, without groups or state.
  explicit UpdatePlan(const ParameterArena& arena);

  /// The order in which tables name members; by default that of members(). Those left out are in no table.
  void arrange(std::vector<int> order);
  /// Has updates move averages in the same pass: one flat f32 tensor per part of the arena; or none again.
  void set_averages(std::span<const Tensor> averages, const kernels::AverageRule& rule);

  std::span<const Member> members() const { return members_; }
  /// Updates each member has received, i64.
  const Tensor& steps() const { return steps_; }

  /// One table per part of the arena, naming the members that have a gradient now. Valid until the next call.
  std::span<const kernels::UpdateTable> refresh();
  /// The same for the members whose parameters are marked: one entry per parameter of the arena.
  std::span<const kernels::UpdateTable> refresh(std::span<const char> marked);
  /// The table of an active member and of the active ones that the tables name after it, `count` in all: of
  /// one part, and as large as the first. Allocates nothing but handles.
  kernels::UpdateTable table_of(int member, std::int64_t count = 1) const;
  /// Whether a member was in a table at the last refresh().
  bool active(int member) const { return active_[static_cast<std::size_t>(member)] != 0; }

 private:
  template <class F> std::span<const kernels::UpdateTable> refresh_by(const F& is_active);
  void rebuild();

  const ParameterArena& arena_;
  std::vector<Member> members_;
  std::vector<int> order_;
  std::vector<char> active_;
  std::vector<Tensor> staging_;  // per part, on the host
  std::vector<kernels::UpdateTable> tables_;
  std::vector<std::int64_t> first_range_;  // of each member in its part's table
  Tensor steps_;
  bool built_ = false;
};

}  // namespace athanor
