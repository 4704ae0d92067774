#include <algorithm>
#include <cmath>
#include <functional>
#include <set>

#include <fmt/format.h>

#include "trainer/metric_sums.h"
#include "trainer/report/detail/page.h"

namespace athanor::report {
namespace {

struct Row {
  std::string name;
  std::vector<double> values;
  Format format = Format::plain;
  int better = 0;  ///< 1: higher is better, -1: lower, 0: neither
};

std::string key_of(std::size_t run) {
  return fmt::format("<i class=\"key f{}\"></i>", run % kColours);
}

/// The header of a table with a column for each run.
std::string head(const std::vector<Record>& runs) {
  std::vector<std::string> headings{""};
  const std::vector<std::string> labels = labels_of(runs);
  for (std::size_t i = 0; i < runs.size(); ++i) headings.push_back(key_of(i) + escaped(labels[i]));
  return head_row(headings);
}

std::string html_of(const Row& figures) {
  double best = std::nan("");
  for (const double value : figures.values) {
    if (std::isfinite(value) && (std::isnan(best) || figures.better * (value - best) > 0)) best = value;
  }
  if (std::isnan(best)) return "";  // no run has it
  const bool all_same =
      std::all_of(figures.values.begin(), figures.values.end(), [&](double value) { return value == best; });
  std::vector<std::string> cells;
  for (const double value : figures.values) {
    const bool mark = figures.better != 0 && !all_same && value == best;
    cells.push_back((mark ? "<b>" : "") + figure(value, figures.format) + (mark ? "</b>" : ""));
  }
  return row(escaped(figures.name), cells);
}

std::string text_row(const std::string& name, const std::vector<Record>& runs,
                     const std::function<std::string(const Record&)>& of) {
  std::vector<std::string> cells;
  for (const Record& run : runs) cells.push_back(escaped(of(run)));
  return row(name, cells, " class=\"words\"");
}

std::string figures_table(const std::vector<Record>& runs) {
  std::string rows;
  const auto add = [&](const std::string& name, Format format, int better,
                       const std::function<double(const Record&)>& of) {
    Row figures{.name = name, .values = {}, .format = format, .better = better};
    for (const Record& run : runs) figures.values.push_back(of(run));
    rows += html_of(figures);
  };
  for (const std::string& metric : metric_names(runs)) {
    const int better = metric == "accuracy"                                    ? 1
                       : metric.ends_with("loss") || metric.ends_with("error") ? -1
                                                                               : 0;
    const Format format = format_of(metric);
    add(metric, format, better, [&](const Record& run) { return last_value(run, metric); });
    if (better == 0) continue;
    add("best " + metric + " of an epoch", format, better,
        [&](const Record& run) { return best_of(run, "val_" + metric).value; });
    add("in epoch", Format::count, 0, [&](const Record& run) { return best_of(run, "val_" + metric).epoch; });
    add("training " + metric, format, 0, [&](const Record& run) {
      return run.epochs.empty() ? std::nan("") : number(run.epochs.back(), "train_" + metric);
    });
  }
  const auto end = [](const char* key) { return [key](const Record& run) { return number(run.end, key); }; };
  add("time", Format::seconds, -1, end("wall_s"));
  add("images per second", Format::count, 1, end("images_per_s"));
  add("epochs", Format::count, 0, end("epochs"));
  add("steps", Format::count, 0, end("applied_steps"));
  add("skipped steps", Format::count, 0, end("skipped_steps"));
  add("peak memory", Format::bytes, -1, end("peak_bytes"));
  rows += text_row("ended", runs, ending_of);
  rows += text_row("weights", runs, [](const Record& run) { return text(run.end, "weights_hash"); });
  return section("figures", "Figures",
                 scrolled(table("numbers", head(runs) + rows)) +
                     "<p><small>Bold: the best value, if higher or lower is better.</small></p>\n");
}

std::string charts(const std::vector<Record>& runs) {
  std::string large, small;
  const std::vector<std::string> labels = labels_of(runs);
  for (const std::string& metric : metric_names(runs)) {
    if (is_of_class(metric)) continue;
    for (const char* const prefix : {"val_", "train_"}) {
      Chart chart{.title = fmt::format("{} {}", prefix[0] == 'v' ? "Validation" : "Training", metric),
                  .format = format_of(metric),
                  .x_name = "epoch"};
      for (std::size_t i = 0; i < runs.size(); ++i)
        chart.curves.push_back({.label = labels[i],
                                .points = epoch_points(runs[i], prefix + metric),
                                .colour = static_cast<int>(i),
                                .source = fmt::format("{}/epochs/{}{}", i, prefix, metric),
                                .dots = true});
      (prefix[0] == 'v' ? large : small) += html_of(chart);
    }
  }
  for (const char* const key : {"train_loss", "train_accuracy", "val_loss", "val_accuracy", "learning_rate",
                                "grad_norm", "loss_scale", "skipped_steps", "images_per_s"})
    small += step_chart(runs, key);
  small += data_share_chart(runs) + other_step_charts(runs);
  return section(
      "curves", "Curves",
      "<div class=\"charts large\">\n" + large + "</div>\n<div class=\"charts\">\n" + small + "</div>\n");
}

/// Flags that differ, or those that are equal.
std::string flag_rows(const std::vector<Record>& runs, bool differ) {
  std::vector<std::vector<FlagRow>> flags;
  std::vector<std::string> names;
  std::set<std::string> known;
  for (const Record& run : runs) {
    flags.push_back(flags_of(run));
    for (const FlagRow& flag : flags.back())
      if (known.insert(flag.name).second) names.push_back(flag.name);
  }
  std::string rows;
  for (const std::string& name : names) {
    std::vector<std::string> values;
    for (const auto& of_run : flags) {
      const auto at =
          std::find_if(of_run.begin(), of_run.end(), [&](const FlagRow& flag) { return flag.name == name; });
      values.push_back(at == of_run.end() ? "-" : at->value);
    }
    const bool same = std::all_of(values.begin(), values.end(),
                                  [&](const std::string& value) { return value == values[0]; });
    if (same == differ) continue;
    std::vector<std::string> cells;
    for (std::size_t i = 0; i < (differ ? values.size() : 1); ++i) cells.push_back(escaped(values[i]));
    rows += row("<code>" + escaped(name) + "</code>", cells, differ ? " class=\"differs\"" : "");
  }
  return rows;
}

std::string configuration(const std::vector<Record>& runs) {
  const std::string differ = flag_rows(runs, true), same = flag_rows(runs, false);
  return section(
      "configuration", "Configuration",
      (differ.empty() ? "<p>No flag differs.</p>\n" : scrolled(table("flags", head(runs) + differ))) +
          folded("Flags that are the same", table("pairs", same)));
}

std::string notes(const std::vector<Record>& runs) {
  std::vector<std::string> items;
  for (const Record& run : runs)
    for (const std::string& line : run.notes) items.push_back(escaped(run.name) + ": " + escaped(line));
  return section("notes", "Notes", list(items));
}

}  // namespace

std::string comparison_of(const std::vector<Record>& runs) {
  std::string legend;
  Json carried{{"runs", Json::array()}};
  for (std::size_t i = 0; i < runs.size(); ++i) {
    legend += fmt::format("<li>{}{}</li>\n", key_of(i), escaped(runs[i].name));
    const Json whole = json_of(runs[i]);
    carried["runs"].push_back(
        {{"name", whole["name"]}, {"epochs", whole["epochs"]}, {"steps", whole["steps"]}});
  }
  const std::string title = fmt::format("{} runs compared", runs.size());
  return whole_page(title,
                    fmt::format("<header>\n<h1>{}</h1>\n<ul class=\"legend\">\n{}</ul>\n</header>\n<main>\n",
                                title, legend) +
                        figures_table(runs) + charts(runs) + configuration(runs) + notes(runs) + "</main>\n",
                    script_json(carried));
}

}  // namespace athanor::report
