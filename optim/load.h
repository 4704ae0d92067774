#pragma once

#include "tensor/state_dict.h"

namespace athanor {

/// Copies the tensors of `source` over those of `target` with the same names; other entries of `target` are
/// ignored, and the caller has read those of `source`. A sharded tensor takes its runs from a whole one, or
/// from one with the same runs. Throws ArgumentError, before anything is written, when `source` lacks a
/// tensor, has one of another shape or dtype, or has an entry nobody asked for.
void load_tensors(const StateDict& target, const StateDict& source, const char* who);

/// The two halves of it: all that may throw, then the copies.
void check_tensors(const StateDict& target, const StateDict& source, const char* who);
void copy_tensors(const StateDict& target, const StateDict& source);

/// The same entries with tensors of their own, dense, on the same devices: what is written to those of
/// `state` does not reach them.
StateDict clone_tensors(const StateDict& state);

}  // namespace athanor
