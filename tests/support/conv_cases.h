#pragma once

#include <vector>

#include "kernels/conv.h"

namespace athanor::test {

struct ConvCase {
  Shape x, w;
  Conv2dParams params;
};

/// Strides, padding, dilation, groups, 1 x 1, odd sizes; channels from 1 up to what oneDNN's code likes, that
/// are whole packets of a GPU and such that are not.
inline std::vector<ConvCase> conv_cases() {
  return {
      {{2, 5, 5, 1}, {1, 3, 3, 1}, {}},
      {{1, 1, 1, 1}, {1, 1, 1, 1}, {}},
      {{2, 28, 28, 1}, {6, 5, 5, 1}, {.padding = {2, 2}}},
      {{3, 14, 14, 6}, {16, 5, 5, 6}, {}},
      {{2, 9, 7, 3}, {8, 3, 3, 3}, {.padding = {1, 1}}},
      {{2, 9, 7, 3}, {24, 2, 2, 3}, {}},
      {{1, 15, 13, 3}, {64, 7, 7, 3}, {.stride = {2, 2}, .padding = {3, 3}}},
      {{1, 23, 23, 3}, {16, 11, 11, 3}, {.stride = {4, 4}, .padding = {2, 2}}},
      {{2, 8, 8, 16}, {16, 3, 3, 16}, {.padding = {1, 1}}},
      {{2, 9, 9, 16}, {32, 3, 3, 16}, {.stride = {2, 2}, .padding = {1, 1}}},
      {{2, 8, 8, 16}, {32, 1, 1, 16}, {.stride = {2, 2}}},
      {{2, 7, 5, 24}, {17, 1, 1, 24}, {}},
      {{1, 6, 5, 4}, {8, 1, 1, 4}, {.padding = {1, 0}}},
      {{1, 10, 10, 8}, {8, 3, 3, 8}, {.padding = {2, 2}, .dilation = {2, 2}}},
      {{1, 11, 9, 4}, {5, 3, 2, 4}, {.stride = {2, 1}, .padding = {0, 1}, .dilation = {1, 3}}},
      {{1, 13, 12, 4}, {8, 3, 4, 4}, {.stride = {4, 3}, .padding = {2, 3}, .dilation = {2, 3}}},
      {{1, 12, 12, 8}, {8, 3, 3, 8}, {.stride = {2, 2}, .padding = {2, 2}, .dilation = {2, 2}}},
      {{2, 8, 6, 8}, {12, 3, 3, 2}, {.padding = {1, 1}, .groups = 4}},
      {{2, 6, 6, 32}, {64, 3, 3, 16}, {.stride = {2, 2}, .padding = {1, 1}, .groups = 2}},
      {{2, 8, 8, 16}, {16, 3, 3, 1}, {.padding = {1, 1}, .groups = 16}},
      {{1, 8, 8, 6}, {12, 3, 3, 1}, {.stride = {2, 2}, .padding = {1, 1}, .groups = 6}},
      {{2, 9, 7, 40}, {40, 5, 5, 1}, {.stride = {2, 1}, .padding = {2, 3}, .dilation = {1, 2}, .groups = 40}},
      {{2, 5, 6, 7}, {7, 3, 2, 1}, {.groups = 7}},
      {{2, 4, 4, 64}, {64, 3, 3, 64}, {.padding = {1, 1}}},
      {{1, 3, 3, 2}, {3, 3, 3, 2}, {}},
      {{1, 2, 2, 2}, {3, 3, 3, 2}, {.padding = {1, 1}}},  // the input is smaller than the kernel
      {{1, 6, 6, 2}, {2, 2, 2, 2}, {.stride = {4, 4}}},   // rows and columns that no output sees
      {{1, 2, 3, 4}, {2, 1, 1, 4}, {.stride = {5, 7}}},   // a stride beyond the image
      {{2, 3, 1, 3}, {5, 2, 1, 3}, {.stride = {1, 2}, .padding = {1, 1}}},  // outputs that see padding alone
      {{2, 2, 1, 1}, {5, 3, 3, 1}, {.stride = {1, 2}, .padding = {2, 1}}},  // one channel, one column
      {{2, 6, 4, 1}, {16, 5, 4, 1}, {.stride = {2, 2}}},
      {{1, 4, 2, 5}, {10, 2, 2, 1}, {.stride = {1, 2}, .groups = 5}},
  };
}

}  // namespace athanor::test
