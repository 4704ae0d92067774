#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "data/preprocess.h"
#include "optim/schedule.h"
#include "tensor/state_dict.h"
#include "trainer/callback.h"

namespace athanor {

/// A setting that affects a run's results and that a checkpoint cannot restore: a row of the table of
/// settings (detail/settings_table.h), or what the program and its data bring.
struct Setting {
  std::string name;    ///< in checkpoints
  std::string called;  ///< name for the user: a flag, or a part of the program or data
  std::string value;
  std::string unset = {};  ///< the value that messages call "not given"
  /// What a run had whose checkpoint has no such setting, being older than it; unset: each has it.
  std::optional<std::string> before = {};
  /// Whether a resumed run may have `value` in place of what was saved; null: only if they are equal.
  bool (*may_follow)(const std::string& saved, const std::string& value) = nullptr;
  /// If one of these differs, this setting differs as a consequence and is not reported.
  std::vector<std::string> follows = {};
};
/// `schedule_steps`: the number of steps the learning rates were made for; smaller than the run's if a
/// resumed run is extended.
std::vector<Setting> settings_of(const FitInfo& info, const Normalization& pixels,
                                 const std::vector<Schedule>& schedules, std::int64_t schedule_steps,
                                 const std::string& optimizer);
/// Settings that only ranks must share, as they determine messages. A rank's own ones (threads, device,
/// workers, paths) are in neither list.
std::vector<Setting> settings_of_ranks(const TrainerConfig& config);

/// With the version of this format.
StateDict state_of(const std::vector<Setting>& settings);
/// The number of steps for which learning rates were made, from saved settings. Throws ArgumentError if they
/// are of another version.
std::int64_t saved_schedule_steps(const StateDict& saved);
/// Throws ArgumentError naming each setting that differs between `saved` and `mine`, with both values.
/// If the run `may_extend`, settings that may follow the saved ones are no difference: more epochs, another
/// patience. Returns whether there are any.
bool check_settings(const StateDict& saved, const std::vector<Setting>& mine, bool may_extend);
/// `schedule`, constant from step `steps` on at the rate of the previous step.
Schedule held_after(Schedule schedule, std::int64_t steps);

}  // namespace athanor
