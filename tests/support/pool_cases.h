#pragma once

#include <string>
#include <vector>

#include "autograd/pool.h"

namespace athanor::test {

struct PoolCase {
  Shape x;
  Pool2dParams params;
};

inline std::string describe(const PoolCase& c) {
  const Pool2dParams& p = c.params;
  return fmt::format("{} window {} {} stride {} {} padding {} {} dilation {} {}", c.x, p.window[0],
                     p.window[1], p.stride[0], p.stride[1], p.padding[0], p.padding[1], p.dilation[0],
                     p.dilation[1]);
}

/// Windows of max pooling with and without a dilation: one that padding begins with, one larger than the
/// stride, one with gaps between windows, ceil mode, more elements than a byte counts; channels that are
/// whole vectors and such that are not.
inline std::vector<PoolCase> dilated_pool_cases() {
  std::vector<PoolCase> all;
  for (const std::int64_t channels : {1, 3, 8, 17, 64}) {
    all.push_back({{2, 6, 8, channels}, {}});
    all.push_back({{1, 7, 6, channels}, {.window = {3, 3}, .padding = {1, 1}}});
    all.push_back({{2, 7, 8, channels}, {.stride = {1, 1}, .dilation = {2, 3}}});
    all.push_back(
        {{1, 8, 9, channels}, {.window = {3, 3}, .stride = {2, 2}, .padding = {1, 1}, .dilation = {2, 2}}});
    all.push_back(
        {{1, 9, 8, channels}, {.window = {3, 2}, .stride = {2, 3}, .padding = {1, 1}, .dilation = {3, 4}}});
  }
  all.push_back({{1, 8, 7, 2}, {.window = {2, 3}, .stride = {3, 2}, .ceil_mode = true, .dilation = {3, 2}}});
  all.push_back({{1, 7, 7, 3}, {.window = {4, 4}, .stride = {1, 1}, .padding = {2, 2}, .dilation = {2, 2}}});
  all.push_back({{1, 36, 17, 2}, {.window = {17, 16}, .stride = {1, 1}, .dilation = {2, 1}}});
  all.push_back({{1, 1, 1, 5}, {.window = {1, 1}, .stride = {1, 1}, .dilation = {7, 7}}});
  return all;
}

}  // namespace athanor::test
