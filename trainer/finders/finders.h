#pragma once

#include <string>
#include <vector>

#include "trainer/finders/lr_finder.h"
#include "trainer/run/step_executor.h"

// What a run finds out by steps that are tried out, of which callbacks learn nothing.

namespace athanor {

/// Trainer::find_lr().
LrCurve find_lr(Run& run, StepExecutor& steps, const LrRange& range);
/// --find-lr: tells callbacks the answer, and draws the curve.
FitReport answer_with_lr(Run& run, StepExecutor& steps);
/// --threads auto. Returns a note; empty: the number is given.
std::string choose_threads(Run& run, StepExecutor& steps);
/// --benchmark. A run keeps the implementations it was begun with, in every resumed run, so that the bits of
/// results stay the same. Returns a note; mostly empty.
std::string choose_convs(Run& run, StepExecutor& steps, bool resumed);
/// Seconds of each of up to `count` steps after `warm` ones. Stops after three once they take `at_most_s` in
/// total, and at once on a signal. Undoes nothing.
std::vector<double> time_steps(Run& run, StepExecutor& steps, int warm, int count, double at_most_s);
/// 0 without values.
double median(std::vector<double> values);

}  // namespace athanor
