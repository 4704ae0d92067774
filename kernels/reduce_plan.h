#pragma once

#include <array>
#include <cstdint>
#include <cstdlib>

#include "tensor/tensor.h"

namespace athanor::kernels {

/// Axes of a reduction that are walked together: maps an index to offsets in x and y.
struct ReduceAxes {
  struct Axis {
    std::int64_t size, x, y;  // size, element strides
  };
  std::array<Axis, kMaxRank> axes{};
  int rank = 0;

  void push(const Axis& axis) { axes[static_cast<std::size_t>(rank++)] = axis; }
  ATH_HD std::int64_t count() const {
    std::int64_t n = 1;
    for (int i = 0; i < rank; ++i) n *= axes[static_cast<std::size_t>(i)].size;
    return n;
  }
  struct Offset {
    std::int64_t x = 0, y = 0;
  };
  ATH_HD Offset at(std::int64_t index) const {
    Offset offset;
    for (int i = rank - 1; i >= 0; --i) {
      const Axis& axis = axes[static_cast<std::size_t>(i)];
      const std::int64_t k = i == 0 ? index : index % axis.size;
      offset.x += k * axis.x;
      offset.y += k * axis.y;
      index /= axis.size;
    }
    return offset;
  }
};

/// The order in which x is reduced to y. Axes are sorted by their stride in x, so memory is read forwards for
/// any view, and merged if possible. The innermost is either summed itself (row sums) or carries a vector of
/// sums (column sums); the others are kept or reduced around it.
struct ReducePlan {
  ReduceAxes kept, reduced;
  ReduceAxes::Axis inner{1, 1, 0};
  bool inner_reduced = true;

  ReducePlan(const Tensor& x, const Tensor& y) {
    struct Step : ReduceAxes::Axis {
      bool reduced;
    };
    std::array<Step, kMaxRank> steps;
    int count = 0;
    for (int i = 0; i < x.rank(); ++i) {
      if (x.shape()[i] == 1) continue;
      const bool reduces = y.shape()[i] == 1;
      const Step step{{x.shape()[i], x.strides()[i], reduces ? 0 : y.strides()[i]}, reduces};
      // A stride of 0 repeats the inner axes, so it goes outside.
      const auto outside = [](const Step& a, const Step& b) {
        return b.x != 0 && (a.x == 0 || std::abs(a.x) > std::abs(b.x));
      };
      int at = count++;
      for (; at > 0 && outside(step, steps[static_cast<std::size_t>(at - 1)]); --at)
        steps[static_cast<std::size_t>(at)] = steps[static_cast<std::size_t>(at - 1)];
      steps[static_cast<std::size_t>(at)] = step;
    }
    int merged = 0;
    for (int i = 0; i < count; ++i) {
      const Step& step = steps[static_cast<std::size_t>(i)];
      Step* last = merged > 0 ? &steps[static_cast<std::size_t>(merged - 1)] : nullptr;
      if (last && last->reduced == step.reduced && last->x == step.x * step.size &&
          last->y == step.y * step.size) {
        *last = Step{{last->size * step.size, step.x, step.y}, step.reduced};
      } else {
        steps[static_cast<std::size_t>(merged++)] = step;
      }
    }
    if (merged == 0) return;
    inner = steps[static_cast<std::size_t>(merged - 1)];
    inner_reduced = steps[static_cast<std::size_t>(merged - 1)].reduced;
    for (int i = 0; i + 1 < merged; ++i) {
      const Step& step = steps[static_cast<std::size_t>(i)];
      (step.reduced ? reduced : kept).push(step);
    }
  }
};

}  // namespace athanor::kernels
