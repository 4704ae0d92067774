#pragma once

#include <cstdint>
#include <span>

#include "nn/module.h"
#include "trainer/config.h"

namespace athanor {

// --freeze PREFIX[:EPOCHS]. What stays frozen for the whole run is so before the run takes its memory:
// FrozenWeights. What is released later lies in the arena from the beginning, with gradients and optimizer
// state; while it is frozen no gradient comes, and so no update and no decay (Optimizer). Either way its
// batch norms stand still. All depends on the epoch alone: a run that goes on does the same.

/// Before a run takes its memory: freezes what stays frozen, unfreezes what an earlier run has left frozen
/// and this one will release. Throws ArgumentError where a prefix names no module of the networks, listing
/// those there are.
void freeze_for_run(nn::Module& networks, std::span<const Freeze> freezes);
/// At the beginning of an epoch: freezes what is frozen in it, unfreezes the rest. Throws ArgumentError where
/// nothing is left to train.
void freeze_for_epoch(nn::Module& networks, std::span<const Freeze> freezes, std::int64_t epoch);

}  // namespace athanor
