#pragma once

#include <string>
#include <vector>

#include "trainer/report/detail/chart.h"
#include "trainer/report/detail/record.h"

namespace athanor::report {

/// The page of one run: its result, curves, use of time and memory, mistakes, configuration and machine.
std::string page_of(const Record& run);
/// The comparison of several runs: a table of results, overlaid curves, and differences of their
/// configurations.
std::string comparison_of(const std::vector<Record>& runs);

// Sections of a run's page; empty without data.
std::string times_section(const Record& run);
std::string memory_section(const Record& run);
std::string epochs_section(const Record& run);
std::string configuration_section(const Record& run);
std::string facts_section(const Record& run);
std::string notes_section(const Record& run);

// Shared by both.

/// "loss", "accuracy", ...: names with train_NAME or val_NAME in epochs, losses first, in order.
std::vector<std::string> metric_names(const std::vector<Record>& runs);
/// By epoch.
std::vector<Point> epoch_points(const Record& run, const std::string& key);
/// By attempted step; empty if steps have no such value.
std::vector<Point> step_points(const Record& run, const std::string& key);
Format format_of(const std::string& key);
/// A chart by step, of the runs with such values. Empty if it is uninformative.
std::string step_chart(const std::vector<Record>& runs, const std::string& key);
/// The share of each epoch's steps spent waiting for data.
std::string data_share_chart(const std::vector<Record>& runs);
/// Charts of step values not shown otherwise, such as a task's own.
std::string other_step_charts(const std::vector<Record>& runs);
/// Name and value of each flag.
struct FlagRow {
  std::string name, value;
  bool given = false;
};
std::vector<FlagRow> flags_of(const Record& run);
/// The final state of a run: "finished: all epochs", "still running".
std::string ending_of(const Record& run);
/// Value of "accuracy", "loss", ... at the end, else in the last epoch.
double last_value(const Record& run, const std::string& metric);
/// The best value of any epoch, and that epoch; NaN if there is none.
struct Best {
  double value, epoch;
};
Best best_of(const Record& run, const std::string& key);
/// Seconds of each part.
std::vector<Bar> times_of(const Record& run);
/// Names short enough for curves: without common folders.
std::vector<std::string> labels_of(const std::vector<Record>& runs);

}  // namespace athanor::report
