#pragma once

#include "tensor/state_dict.h"

namespace athanor {

/// Copies the tensors of `source` over those of `target` with the same names. Other entries of `target` are
/// ignored; the caller has read those of `source`. A sharded tensor takes its runs from a whole one, or from
/// one with the same runs. Throws ArgumentError, before writing anything, if `source` lacks a tensor, has one
/// of another shape or dtype, or has an unexpected entry.
void load_tensors(const StateDict& target, const StateDict& source, const char* who);

/// Its two halves: every check that may throw, then the copies.
void check_tensors(const StateDict& target, const StateDict& source, const char* who);
void copy_tensors(const StateDict& target, const StateDict& source);

/// A deep copy of a state: new dense tensors on the same devices, unaffected by later writes to `state`.
StateDict clone_tensors(const StateDict& state);

}  // namespace athanor
