#pragma once

#include <cmath>
#include <cstddef>
#include <vector>

#include "trainer/detail/plot.h"

namespace athanor::report {

using plot::Point;

/// A curve of any length in bounded memory: at most 2 * kMax points, with the minimum and maximum of every
/// stretch. Stretches have equal length, which doubles when there are too many.
class Series {
 public:
  static constexpr std::size_t kMax = 500;

  /// Steps must ascend; other steps and values that are not finite are ignored.
  void add(double step, double value) {
    if (!std::isfinite(step) || !std::isfinite(value) || step < 0) return;
    if (step <= last_.x) return;
    last_ = {step, value};
    if (stretches_.empty()) stretches_.reserve(kMax + 1);  // once: later steps allocate nothing
    put({std::floor(step / width_), last_, last_}, stretches_.size());
    while (stretches_.size() > kMax) {
      width_ *= 2;
      std::size_t count = 0;
      for (std::size_t i = 0; i < stretches_.size(); ++i) {
        Stretch one = stretches_[i];
        one.index = std::floor(one.low.x / width_);
        count = put(one, count);
      }
      stretches_.resize(count);
    }
  }

  /// In step order.
  std::vector<Point> points() const {
    std::vector<Point> all;
    all.reserve(2 * stretches_.size());
    for (const Stretch& one : stretches_) {
      const bool low_first = one.low.x <= one.high.x;
      all.push_back(low_first ? one.low : one.high);
      if (one.low.x != one.high.x) all.push_back(low_first ? one.high : one.low);
    }
    return all;
  }

  bool empty() const { return stretches_.empty(); }
  /// The last point added; {-1, 0} if there is none.
  Point last() const { return last_; }

  /// Removes points after a step.
  void drop_after(double step) {
    const std::vector<Point> all = points();
    *this = {};
    for (const Point& point : all) {
      if (point.x <= step) add(point.x, point.y);
    }
  }

 private:
  struct Stretch {
    double index = 0;  // of the stretch
    Point low, high;
  };

  /// Appends to the first `count` stretches, or merges into the last of them. Returns their new number.
  std::size_t put(const Stretch& one, std::size_t count) {
    if (count == 0 || stretches_[count - 1].index != one.index) {
      if (count == stretches_.size())
        stretches_.push_back(one);
      else
        stretches_[count] = one;
      return count + 1;
    }
    Stretch& into = stretches_[count - 1];
    if (one.low.y < into.low.y) into.low = one.low;
    if (one.high.y > into.high.y) into.high = one.high;
    return count;
  }

  std::vector<Stretch> stretches_;
  Point last_{-1, 0};
  double width_ = 1;
};

}  // namespace athanor::report
