#pragma once

#include <filesystem>
#include <vector>

#include "trainer/config.h"

namespace athanor {

/// The folders of a program's runs: ROOT/1, ROOT/2 and so on, and a link ROOT/latest to the one that was made
/// last. A run's folder holds
///
///     model.safetensors  the weights that the run reports, with all that using them takes: model_file.h
///     last.safetensors   those of the last step, where they are others
///     metrics.jsonl  checkpoints/  samples/  config.json
///
/// Of a run in phases, the first two lie in folders of the phases' names.

/// Makes the next folder below `root`, and links `latest` to it. Programs that do so at once get one each.
/// Throws IoError.
std::filesystem::path make_run_folder(const std::filesystem::path& root);
/// Those that are there, the newest first; none where there is no `root`.
std::vector<std::filesystem::path> run_folders(const std::filesystem::path& root);

/// A run's files, of that phase; an empty phase: it has none.
std::filesystem::path model_path(const std::filesystem::path& run_dir, const std::string& phase);
/// The model that a user names: a file, or the folder of a run. Throws IoError where that has none.
std::filesystem::path model_of(const std::filesystem::path& given);
std::filesystem::path last_model_path(const std::filesystem::path& run_dir, const std::string& phase);

/// Writes config.json: program and version, when it began, the command, and each flag's value and where it
/// came from. Throws IoError.
void write_config(const std::filesystem::path& run_dir, const TrainerConfig& config);

}  // namespace athanor
