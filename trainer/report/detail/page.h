#pragma once

#include <string>
#include <vector>

#include "trainer/report/detail/chart.h"
#include "trainer/report/detail/record.h"

namespace athanor::report {

/// The page of one run: what came of it, its curves, where its time and memory went, what it takes for what,
/// its configuration and machine.
std::string page_of(const Record& run);
/// The page of several: a table of their figures, their curves over each other, and where their
/// configurations differ.
std::string comparison_of(const std::vector<Record>& runs);

// What both are made of.

/// "loss", "accuracy", ...: what epochs have as train_NAME or val_NAME, losses first, in their order.
std::vector<std::string> metric_names(const std::vector<Record>& runs);
/// By epoch.
std::vector<Point> epoch_points(const Record& run, const std::string& key);
/// By attempted step; none where steps have no such value.
std::vector<Point> step_points(const Record& run, const std::string& key);
Format format_of(const std::string& key);
/// Charts by step: of the runs that have such values. Empty where they tell nothing.
std::string step_chart(const std::vector<Record>& runs, const std::string& key);
/// The part of each epoch's steps that went into waiting for data.
std::string data_share_chart(const std::vector<Record>& runs);
/// Of steps that were not in the chart before: what others have logged.
std::string other_step_charts(const std::vector<Record>& runs);
/// Name and value of each flag.
struct FlagRow {
  std::string name, value;
  bool given = false;
};
std::vector<FlagRow> flags_of(const Record& run);
/// The last word on a run: "finished: all epochs", "still running".
std::string ending_of(const Record& run);
/// Of the end, else of the last epoch: "accuracy", "loss", ...
double last_value(const Record& run, const std::string& metric);
/// The best value of an epoch, and which it was; NaN where there is none.
struct Best {
  double value, epoch;
};
Best best_of(const Record& run, const std::string& key);
/// Seconds of each part.
std::vector<Bar> times_of(const Record& run);
/// Names short enough for curves: without the folders that all of them are in.
std::vector<std::string> labels_of(const std::vector<Record>& runs);

}  // namespace athanor::report
