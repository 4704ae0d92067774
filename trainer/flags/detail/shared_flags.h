#pragma once

#include "trainer/config.h"
#include "trainer/flags/detail/flag_table.h"

/// The flags shared by all training programs: names, help texts, config fields and parsing. One function per
/// heading in --help.
namespace athanor::detail {

void add_training_flags(FlagTable& flags, TrainerConfig& config);
void add_recipe_flags(FlagTable& flags, TrainerConfig& config);
/// After parsing: sets the usual options of the chosen optimizer, unless flags set them.
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
/// A trial run creates no folder and no checkpoints.
void leave_nothing_behind(TrainerConfig& config);
/// After parsing: a run that only answers a question leaves nothing but its answer. Throws ArgumentError on
/// contradictory flags.
void fit_to_question(const FlagTable& flags, TrainerConfig& config);

}  // namespace athanor::detail
