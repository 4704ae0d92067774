#pragma once

#include <cstdint>
#include <vector>

#include "data/dataset.h"

namespace athanor {

/// The field of a number that says how much a sample counts.
inline constexpr char kWeightField[] = "weight";

/// The number of samples of each class. Reads every label. Throws ArgumentError, which `subject` begins, on a
/// label outside [0, classes).
std::vector<std::int64_t> class_sizes(const Dataset& data, const char* subject);

/// Weights for LoaderOptions::weights that draw all classes equally often: of each sample, 1 / the number of
/// samples of its class. Throws as class_sizes(), and on data without labels.
std::vector<double> balanced_sample_weights(const Dataset& data);
/// The field "weight" of each sample, one number: a column of a table. Throws ArgumentError, which `subject`
/// begins, if there is no such field, or a number is negative; and what reading a sample throws. If
/// `keeps_going`, one that cannot be read gets the mean of the others, so that it is drawn, and counted.
std::vector<double> stored_sample_weights(const Dataset& data, const char* subject, bool keeps_going = false);

}  // namespace athanor
