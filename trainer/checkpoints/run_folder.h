#pragma once

#include <filesystem>
#include <vector>

#include "trainer/config.h"

namespace athanor {

/// The folders of a program's runs: ROOT/1, ROOT/2 and so on, and a link ROOT/latest to the newest. A run's
/// folder contains
///
///     model.safetensors  the run's reported weights, with everything needed to use them: model_file.h
///     last.safetensors   those of the last step, if different
///     metrics.jsonl  checkpoints/  samples/  config.json
///
/// In a run with phases, the first two are in folders named after the phases.

/// Creates the next folder below `root`, and links `latest` to it. Concurrent programs each get their own.
/// Throws IoError.
std::filesystem::path make_run_folder(const std::filesystem::path& root);
/// Removes such a folder if nothing has been written to its files, and links `latest` to the newest one left.
void remove_unused_run_folder(const std::filesystem::path& folder) noexcept;
/// The existing ones, newest first; none without `root`.
std::vector<std::filesystem::path> run_folders(const std::filesystem::path& root);

/// A run's files of that phase; empty: no phases.
std::filesystem::path model_path(const std::filesystem::path& run_dir, const std::string& phase);
/// The model at a user's path: a file, or the folder of a run. Throws IoError if the folder has none.
std::filesystem::path model_of(const std::filesystem::path& given);
std::filesystem::path last_model_path(const std::filesystem::path& run_dir, const std::string& phase);

/// Writes config.json: program and version, start time, command, and each flag's value and origin. Throws
/// IoError.
void write_config(const std::filesystem::path& run_dir, const TrainerConfig& config);

}  // namespace athanor
