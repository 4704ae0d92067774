#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "trainer/inference/model_file.h"
#include "trainer/run/run.h"

// A run in words: for its user, for other ranks, and for its files.

namespace athanor {

class RunCheckpoints;

/// Settings that ranks must share, or they would eventually diverge: those that affect a run's results, and
/// those that determine its messages. A rank's own settings (threads, device, workers, paths) are not
/// compared.
StateDict shared_settings(const Run& run);
/// The settings of a run whose learning rates are made for so many steps.
std::vector<Setting> settings_over(const Run& run, std::int64_t schedule_steps);
/// `notes`: lines for the user; empty ones are left out. --summary runs the networks on a sample.
FitInfo describe(Run& run, const RunCheckpoints& checkpoints, std::span<const std::string> notes);
/// A note on validation images that are also trained on, on rank 0; empty: there are none. With
/// --strict-data, throws ArgumentError on all ranks.
std::string find_duplicates(const Run& run);
ModelInfo describe_model(const Run& run, std::uint64_t hash, const Metrics& test = Metrics::not_measured());

}  // namespace athanor
