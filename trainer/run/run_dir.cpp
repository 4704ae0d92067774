#include "trainer/run/run_dir.h"

#include <system_error>
#include <utility>

#include "tensor/base/error.h"
#include "trainer/checkpoints/checkpoint.h"

namespace athanor {
namespace {

namespace fs = std::filesystem;

/// The newest run with these settings that has a checkpoint but no final weights yet, and that no other
/// process continues; null if there is none.
std::unique_ptr<FolderLock> unfinished_run(const TrainerConfig& config,
                                           const std::vector<Setting>& settings) {
  for (const fs::path& folder : run_folders(config.run_root)) {
    const fs::path saved = folder / "checkpoints" / config.phase;
    const auto is_unfinished = [&] { return !fs::exists(model_path(folder, "")) && fs::is_directory(saved); };
    if (!is_unfinished()) continue;
    try {
      const NewestCheckpoint newest = newest_valid(saved);
      if (newest.path.empty()) continue;
      check_settings(newest.state.under("settings."), settings, false);
      auto lock = std::make_unique<FolderLock>(folder, "--run-dir");
      const CheckpointFolder checkpoints(saved);
      if (is_unfinished()) return lock;
    } catch (const Error&) {  // of other settings, or in use by another run
    }
  }
  return nullptr;
}

}  // namespace

void RunDir::lock() {
  if (config_.run_dir.empty() || !strategy_.is_rank0()) return;
  lock_ = std::make_unique<FolderLock>(config_.run_dir, "--run-dir");
  std::error_code ignored;
  if (fs::equivalent(config_.run_dir, config_.checkpoint_dir, ignored)) lock_.reset();
}

bool RunDir::choose(const std::vector<Setting>& settings) {
  begun_ = false;
  if (config_.run_root.empty() || config_.fast_dev_run || config_.question != Question::none) return false;
  fs::path chosen;
  strategy_.run_on_rank0([&] {
    if (config_.resume == "auto" && config_.checkpoint_dir.empty()) lock_ = unfinished_run(config_, settings);
    if (!lock_) {
      unused_ = make_run_folder(config_.run_root, &note_);
      lock_ = std::make_unique<FolderLock>(unused_, "--run-dir");
    }
    chosen = lock_->folder();
    is_numbered_ = true;
  });
  chosen = strategy_.broadcast_from_rank0(chosen.string());
  for (TrainerConfig* const config : {&whole_, &config_}) {
    const bool has_checkpoints = !config->checkpoint_dir.empty();
    config->run_dir = chosen;
    config->run_root.clear();
    *config = in_run_dir(std::move(*config));
    if (!has_checkpoints && !config->phase.empty()) config->checkpoint_dir /= config->phase;
  }
  return true;
}

void RunDir::begin(const Observers& observers) {
  begun_ = true;
  unused_.clear();
  if (!strategy_.is_rank0() || config_.run_dir.empty()) return;
  if (!config_.flags.empty()) write_config(config_.run_dir, config_);
  observers.notify(&Callback::on_run_dir, config_.run_dir);
}

bool RunDir::remake(const Observers& observers) {
  if (!lock_) return false;
  std::error_code ignored;
  const bool emptied =
      begun_ && !config_.flags.empty() && !fs::exists(config_.run_dir / "config.json", ignored);
  if (!lock_->remake() && !emptied) return false;
  const fs::path& folder = lock_->folder();
  if (is_numbered_ && run_folders(folder.parent_path()).front() == folder) link_latest(folder);
  if (begun_) begin(observers);
  return true;
}

}  // namespace athanor
