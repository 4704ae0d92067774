#pragma once

#include <cstdint>

#include "data/loader.h"
#include "nn/module.h"
#include "trainer/test_views.h"

namespace athanor {

/// What a network says of a batch, by the mean of views, f32 (f64 of f64): [N, count]. Throws ArgumentError
/// on another shape.
Tensor outputs_of(nn::Module& model, const Batch& batch, std::int64_t count,
                  const TestTimeAugmentation& views = {});
/// The batch's field "labels", in the dtype of such outputs; of mixed images, mixed by their shares.
Tensor targets_of(const Batch& batch, const Tensor& outputs);

}  // namespace athanor
