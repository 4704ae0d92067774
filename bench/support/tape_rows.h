#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "bench/support/bench.h"

namespace athanor::bench {

/// An op as a program calls it, of tensors that ask for gradients.
using TapeOp = std::function<Tensor(std::span<const Tensor>)>;

/// What its two passes compute, and whether backward needs the inputs once more.
struct TapeWork {
  double forward_flops = 0;  ///< 0 leaves the column out
  double backward_flops = 0;
  bool backward_reads_inputs = true;
};

/// Adds the rows `fwd` and `bwd` of an op that is called through the tape. Its inputs have the shapes given
/// and values in [-1, 1). Results and gradients are compared with those of the same op in f64, which the
/// tests compare with a reference; they may differ by `tolerance` roundings of the dtype. Bytes: forward
/// reads the inputs and writes the result; backward reads the result's gradient and, as `work` says, the
/// inputs, and writes a gradient of each input.
void add_tape_rows(const std::string& op, DType dtype, const std::vector<Shape>& inputs, const TapeOp& fn,
                   const TapeWork& work = {}, double tolerance = 8);

}  // namespace athanor::bench
