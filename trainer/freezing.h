#pragma once

#include <cstdint>
#include <span>

#include "nn/module.h"
#include "trainer/config.h"

namespace athanor {

// --freeze PREFIX[:EPOCHS]. Parts frozen for the whole run are frozen before the run allocates memory:
// FrozenWeights. Parts released later are in the arena from the start, with gradients and optimizer state;
// while frozen they get no gradient, so no update and no decay (Optimizer). In both cases batch norms keep
// their statistics. All this depends only on the epoch, so a resumed run does the same.

/// Before a run allocates memory: freezes what stays frozen, and unfreezes what an earlier run left frozen
/// and this one will release. Throws ArgumentError, with a list of module names, if a prefix matches none.
void freeze_for_run(nn::Module& networks, std::span<const Freeze> freezes);
/// At the beginning of an epoch: freezes its frozen parts and unfreezes the rest. Throws ArgumentError if no
/// part would be trained.
void freeze_for_epoch(nn::Module& networks, std::span<const Freeze> freezes, std::int64_t epoch);

}  // namespace athanor
