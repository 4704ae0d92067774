#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "kernels/update.h"
#include "optim/arena.h"

namespace athanor {

/// Averages of masters that the steps of an optimizer move, too: shared by it and the Ema that owns them.
struct FusedAverages {
  std::vector<Tensor> values;  ///< flat f32, one per part of the arena; empty once the Ema is gone
  kernels::AverageRule rule;
  std::vector<int> moved;  ///< by parameter: steps that moved its average since the last Ema::update()
};

/// Tables of the parameters that fused kernels update. They list the members that have a gradient, or those
/// the caller marks, and are rebuilt only if that set changes.
class UpdatePlan {
 public:
  struct Member {
    int parameter = 0;       ///< index in the arena
    int group = 0;           ///< index in StepState::learning_rate
    std::int64_t state = 0;  ///< offset in the optimizer's state tensors
    bool decay = true;
    float lr_scale = 1;  ///< factor of the group's learning rate
  };

  UpdatePlan(const ParameterArena& arena, std::vector<Member> members);
  /// A plan of all parameters of the arena, without groups or state.
  explicit UpdatePlan(const ParameterArena& arena);

  /// Sets the order of members in tables, by default that of members(). Omitted members are in no table.
  void arrange(std::vector<int> order);
  /// From now on, updates move these averages in the same pass, and refresh() counts them as moved. The first
  /// refresh() after their Ema is gone ends it and frees them.
  void fuse(std::shared_ptr<FusedAverages> averages);
  /// Whether it moves averages of a living Ema.
  bool fused() const { return averages_ && !averages_->values.empty(); }

  std::span<const Member> members() const { return members_; }
  /// Number of updates of each member, i64.
  const Tensor& steps() const { return steps_; }

  /// One table per part of the arena, of members that have a gradient now. Valid until the next call.
  std::span<const kernels::UpdateTable> refresh();
  /// The tables of members whose averages no update has moved, for kernels::average_ranges().
  std::span<const kernels::UpdateTable> refresh_unmoved(const FusedAverages& averages);
  /// The table of `count` active members, from `member` on in table order. All must be in one part and as
  /// large as the first. Allocates only handles.
  kernels::UpdateTable table_of(int member, std::int64_t count = 1) const;
  /// Whether a member was in a table at the last refresh().
  bool active(int member) const { return active_[static_cast<std::size_t>(member)] != 0; }

 private:
  template <class F> std::span<const kernels::UpdateTable> refresh_by(const F& is_active);
  void rebuild();
  void set_averages(std::span<const Tensor> averages, const kernels::AverageRule& rule);

  const ParameterArena& arena_;
  std::vector<Member> members_;
  std::vector<int> order_;
  std::vector<char> active_;
  std::vector<Tensor> staging_;  // per part, on the host
  std::vector<kernels::UpdateTable> tables_;
  std::vector<std::int64_t> first_range_;  // of each member in its part's table
  Tensor steps_;
  std::shared_ptr<FusedAverages> averages_;
  bool built_ = false;
};

}  // namespace athanor
