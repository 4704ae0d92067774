#pragma once

#include <vector>

#include "autograd/conv_transpose.h"

namespace athanor::test {

struct ConvTransposeCase {
  Shape x, w;
  ConvTranspose2dParams params;
};

/// The layers of DCGAN's generator with fewer channels; strides, padding, output padding, dilation, groups, 1
/// x 1, odd sizes; channels from 1 up to what oneDNN's code likes.
inline std::vector<ConvTransposeCase> conv_transpose_cases() {
  return {
      {{1, 1, 1, 1}, {1, 1, 1, 1}, {}},
      {{2, 5, 5, 1}, {1, 3, 3, 1}, {}},
      {{3, 1, 1, 16}, {16, 7, 7, 32}, {}},
      {{2, 7, 7, 32}, {32, 4, 4, 16}, {.stride = {2, 2}, .padding = {1, 1}}},
      {{2, 14, 14, 16}, {16, 4, 4, 1}, {.stride = {2, 2}, .padding = {1, 1}}},
      {{2, 6, 5, 16}, {16, 3, 3, 16}, {.padding = {1, 1}}},
      {{2, 4, 5, 24}, {24, 1, 1, 17}, {}},
      {{1, 4, 4, 64}, {64, 3, 3, 64}, {.padding = {1, 1}}},
      {{2, 5, 4, 3}, {3, 3, 3, 8}, {.stride = {2, 2}, .padding = {1, 1}, .output_padding = {1, 1}}},
      {{1, 4, 3, 4},
       {4, 5, 2, 3},
       {.stride = {3, 1}, .padding = {2, 0}, .output_padding = {2, 2}, .dilation = {1, 3}}},
      {{1, 5, 6, 8}, {8, 3, 3, 8}, {.padding = {2, 2}, .dilation = {2, 2}}},
      {{2, 4, 4, 8}, {8, 3, 3, 3}, {.stride = {2, 2}, .groups = 4}},
      {{2, 4, 5, 8}, {8, 4, 4, 1}, {.stride = {2, 2}, .padding = {1, 1}, .groups = 8}},
      {{2, 4, 5, 6}, {6, 3, 3, 2}, {.stride = {2, 1}, .output_padding = {1, 0}, .groups = 6}},
      {{1, 3, 4, 2}, {2, 2, 2, 3}, {.stride = {4, 3}}},   // rows and columns that nothing reaches
      {{1, 5, 6, 2}, {2, 1, 3, 2}, {.padding = {2, 2}}},  // whole kernels cut off
      {{1, 4, 4, 2}, {2, 1, 1, 3}, {.output_padding = {1, 2}, .dilation = {2, 3}}},  // beyond the stride
      {{2, 3, 4, 4},
       {4, 2, 2, 1},
       {.stride = {2, 1}, .output_padding = {3, 2}, .dilation = {4, 3}, .groups = 4}},
  };
}

}  // namespace athanor::test
