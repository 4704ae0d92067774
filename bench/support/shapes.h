#pragma once

#include <cstdint>
#include <vector>

#include "tensor/tensor.h"

namespace athanor::bench {

/// Parameters of a ResNet-18 for CIFAR: 11.2 M in 62 tensors, from 10 elements to 2.4 M.
std::vector<Shape> resnet18_shapes();

/// Parameters of a ResNet-50: 25.6 M in 161 tensors, from 64 elements to 2.4 M.
/// Source: He et al. 2015, arXiv:1512.03385, table 1.
std::vector<Shape> resnet50_shapes();

/// As many parameters as a ResNet-50 has, in one tensor.
std::vector<Shape> flat_shapes();

/// Elements of all.
std::int64_t total(const std::vector<Shape>& shapes);

}  // namespace athanor::bench
