#pragma once

#include <cstdint>

#include "tensor/tensor.h"

namespace athanor::nn {

/// Filters that whiten image patches. With eigenvectors v and eigenvalues l (descending) of the covariance of
/// all kernel x kernel patches, they are v / sqrt(l + eps), then the same negated, so an activation loses no
/// sign. images [N, H, W, C], normalised; returns [2 d, kernel, kernel, C] f32 with d = kernel^2 C. The
/// largest component of each v is positive, so the result is unique. In double, on the host. Source: Jordan
/// 2024, arXiv:2404.00498, section 3.1, with its eps.
Tensor whitening_filters(const Tensor& images, std::int64_t kernel = 2, double eps = 5e-4);

}  // namespace athanor::nn
