#pragma once

#include <string>
#include <vector>

#include "autograd/interpolate.h"

namespace athanor::test {

struct InterpolateCase {
  Shape x;
  InterpolateParams params;
};

inline std::string describe(const InterpolateCase& c) {
  const InterpolateParams& p = c.params;
  return fmt::format("{} {}{} size {} {} scale {} {}", c.x,
                     p.mode == Interpolation::nearest ? "nearest" : "bilinear",
                     p.align_corners ? " aligned" : "", p.size[0], p.size[1], p.scale[0], p.scale[1]);
}

/// Every mode on images that grow, shrink, do both, and stay; by size, by whole scales and others; with
/// channels that are whole vectors and such that are not.
inline std::vector<InterpolateCase> interpolate_cases() {
  struct Geometry {
    Shape x;
    std::int64_t size[2];
    double scale[2];
  };
  const Geometry geometries[] = {
      {{2, 4, 5, 3}, {0, 0}, {2, 2}},     {{1, 5, 4, 8}, {0, 0}, {3, 1.5}},
      {{1, 7, 6, 2}, {0, 0}, {0.5, 0.4}}, {{1, 3, 3, 1}, {0, 0}, {2.7, 1.3}},
      {{2, 5, 7, 16}, {11, 13}, {0, 0}},  {{1, 9, 8, 5}, {4, 3}, {0, 0}},
      {{1, 4, 9, 2}, {9, 4}, {0, 0}},     {{1, 6, 5, 3}, {6, 5}, {0, 0}},
      {{2, 1, 1, 4}, {3, 4}, {0, 0}},     {{1, 4, 3, 3}, {1, 1}, {0, 0}},
      {{1, 1, 1, 1}, {1, 1}, {0, 0}},     {{1, 2, 40, 1}, {1, 7}, {0, 0}},
      {{1, 6, 5, 72}, {11, 12}, {0, 0}},
  };
  std::vector<InterpolateCase> cases;
  for (const Geometry& g : geometries) {
    for (const auto& [mode, align] : {std::pair{Interpolation::nearest, false},
                                      {Interpolation::bilinear, false},
                                      {Interpolation::bilinear, true}})
      cases.push_back({g.x, {mode, align, {g.size[0], g.size[1]}, {g.scale[0], g.scale[1]}}});
  }
  return cases;
}

}  // namespace athanor::test
