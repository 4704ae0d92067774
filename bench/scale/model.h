#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "dist/collectives/group.h"

namespace athanor::scale {

/// One tensor of parameters, as far as a step's time goes.
struct ParameterCost {
  std::int64_t elements = 0;
  double forward_macs =
      0;  ///< multiply-adds per sample of the layer it belongs to; 0 where another tensor has them
};

/// ResNet-50 on 224 x 224 images, in declared order: 161 tensors, 25,557,032 elements, 4.09 G multiply-adds.
/// Source: He et al. 2015, arXiv:1512.03385, with the stride in the 3x3 as in nn::Bottleneck.
std::vector<ParameterCost> resnet50();

/// Parameters [first, last) and the elements their gradients take, in the order in which they are sent.
struct CostBucket {
  int first = 0, last = 0;
  std::int64_t elements = 0;  ///< of `element_bytes` each, padded to 128 bytes per rank
};

/// As ParameterArena cuts them: from the last parameter backwards, at most `bucket_bytes` or one parameter
/// that is larger; the first at most `first_bucket_bytes`.
std::vector<CostBucket> cut_buckets(std::span<const ParameterCost> model, int element_bytes, int world_size,
                                    std::int64_t bucket_bytes, std::int64_t first_bucket_bytes);

}  // namespace athanor::scale
