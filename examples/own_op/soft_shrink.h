#pragma once

#include <athanor.h>

/// x - lambda above lambda, x + lambda below -lambda, and 0 between: sets what is small to zero. x floating,
/// of any shape (f32 on a GPU); lambda >= 0. Its gradient is 1 outside [-lambda, lambda], and 0 inside.
/// Throws ArgumentError. Source: Donoho 1995, "De-noising by soft-thresholding".
athanor::Tensor soft_shrink(const athanor::Tensor& x, double lambda);
