#pragma once

#include <nlohmann/json.hpp>

namespace athanor::examples {

/// Data for the figures of the chapters, computed or measured: docs/figures/draw.py draws them.

/// Errors of a central difference by step length, in f32 and f64.
nlohmann::json gradcheck_errors();
/// Spread of activations and gradients through 24 layers, for four initialisations.
nlohmann::json depth_spread();
/// Accuracy of a short training in training and evaluation mode, by the momentum of the running statistics.
nlohmann::json running_statistics();
/// Distance between two trainings of which one began with another last bit.
nlohmann::json last_bit();
/// Peak memory of attention over growing sequences, with the table of scores and in blocks.
nlohmann::json attention_memory();
/// Bytes of live tensors in each op of a step, with and without checkpoint().
nlohmann::json step_memory();
/// Measured: matrix products of growing size, and the limits of one core.
nlohmann::json roof();
/// Measured: one convolution in three ways.
nlohmann::json convolutions();
/// Which lane of a warp has which element of a tensor core's matrices, and where pieces of shared memory are
/// stored.
nlohmann::json fragment_owners();
/// Measured: a program compared with itself, in two orders.
nlohmann::json same_twice();

}  // namespace athanor::examples
