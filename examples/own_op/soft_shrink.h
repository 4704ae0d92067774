#pragma once

#include <athanor.h>

/// x - lambda above lambda, x + lambda below -lambda, and 0 between; NaN stays NaN. x floating, of any shape
/// (f32 on a GPU); lambda >= 0. The gradient is 1 outside [-lambda, lambda], and 0 inside.
/// Throws ArgumentError. Source: Donoho 1995, "De-noising by soft-thresholding".
athanor::Tensor soft_shrink(const athanor::Tensor& x, double lambda);
