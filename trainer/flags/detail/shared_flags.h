#pragma once

#include "trainer/config.h"
#include "trainer/flags/detail/flag_table.h"

/// The flags that all training programs share: how each is called, what --help says of it, which field of the
/// config it sets, and how its text is read. A function for each heading in --help.
namespace athanor::detail {

void add_training_flags(FlagTable& flags, TrainerConfig& config);
void add_recipe_flags(FlagTable& flags, TrainerConfig& config);
/// After the flags were read: what an optimizer that was chosen is usually used with, where no flag says so.
void fit_to_optimizer(FlagTable& flags, TrainerConfig& config);
void add_augment_flag(FlagTable& flags, TrainerConfig& config);
void add_weight_flags(FlagTable& flags, TrainerConfig& config);
void add_cadence_flags(FlagTable& flags, TrainerConfig& config);
void add_data_flags(FlagTable& flags, TrainerConfig& config);
void add_logger_flags(FlagTable& flags, TrainerConfig& config);
void add_machine_flags(FlagTable& flags, TrainerConfig& config);
void add_rank_flags(FlagTable& flags, TrainerConfig& config);
void add_report_flags(FlagTable& flags, TrainerConfig& config);
void add_finder_flags(FlagTable& flags, TrainerConfig& config);
/// A trial makes no folder and no checkpoints.
void leave_nothing_behind(TrainerConfig& config);
/// After the flags were read: a run that is only asked something leaves nothing but its answer. Throws
/// ArgumentError on flags that contradict it.
void fit_to_question(const FlagTable& flags, TrainerConfig& config);

}  // namespace athanor::detail
