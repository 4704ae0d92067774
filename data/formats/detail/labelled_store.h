#pragma once

#include <memory>
#include <string>
#include <vector>

#include "data/dataset.h"

namespace athanor::detail {

/// Images with several labels, or values, of each: "labels", f32 [K], in place of "label"
/// (data/label_kind.h). `labels`: K of each image, in their order, K >= 1; `names`: of the K, or none. Throws
/// ArgumentError if their numbers do not fit.
std::unique_ptr<Dataset> with_labels(std::unique_ptr<Dataset> images, std::vector<float> labels,
                                     std::vector<std::string> names = {});

}  // namespace athanor::detail
