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
  std::string html = "<tr><td></td>";
  const std::vector<std::string> labels = labels_of(runs);
  for (std::size_t i = 0; i < runs.size(); ++i)
    html += fmt::format("<th scope=\"col\">{}{}</th>", key_of(i), escaped(labels[i]));
  return html + "</tr>\n";
}

std::string html_of(const Row& row) {
  double best = std::nan("");
  for (const double value : row.values) {
    if (std::isfinite(value) && (std::isnan(best) || row.better * (value - best) > 0)) best = value;
  }
  const bool all_same =
      std::all_of(row.values.begin(), row.values.end(), [&](double value) { return value == best; });
  if (std::isnan(best)) return "";  // no run has it
  std::string html = fmt::format("<tr><th scope=\"row\">{}</th>", escaped(row.name));
  for (const double value : row.values) {
    const bool mark = row.better != 0 && !all_same && value == best;
    html +=
        fmt::format("<td>{0}{1}{2}</td>", mark ? "<b>" : "", figure(value, row.format), mark ? "</b>" : "");
  }
  return html + "</tr>\n";
}

std::string text_row(const std::string& name, const std::vector<Record>& runs,
                     const std::function<std::string(const Record&)>& of) {
  std::string html = fmt::format("<tr><th scope=\"row\">{}</th>", name);
  for (const Record& run : runs) html += fmt::format("<td class=\"words\">{}</td>", escaped(of(run)));
  return html + "</tr>\n";
}

std::string figures_table(const std::vector<Record>& runs) {
  std::string rows;
  const auto add = [&](const std::string& name, Format format, int better,
                       const std::function<double(const Record&)>& of) {
    Row row{.name = name, .values = {}, .format = format, .better = better};
    for (const Record& run : runs) row.values.push_back(of(run));
    rows += html_of(row);
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
  return "<section id=\"figures\">\n<h2>Figures</h2>\n<div class=\"scroll\">\n<table class=\"numbers\">\n" +
         head(runs) + rows +
         "</table>\n</div>\n<p><small>Bold: the best value, if higher or lower is "
         "better.</small></p>\n</section>\n";
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
  return "<section id=\"curves\">\n<h2>Curves</h2>\n<div class=\"charts large\">\n" + large +
         "</div>\n<div class=\"charts\">\n" + small + "</div>\n</section>\n";
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
    rows += fmt::format("<tr{}><th scope=\"row\"><code>{}</code></th>", differ ? " class=\"differs\"" : "",
                        escaped(name));
    for (std::size_t i = 0; i < (differ ? values.size() : 1); ++i)
      rows += fmt::format("<td>{}</td>", escaped(values[i]));
    rows += "</tr>\n";
  }
  return rows;
}

std::string configuration(const std::vector<Record>& runs) {
  const std::string differ = flag_rows(runs, true), same = flag_rows(runs, false);
  std::string html = "<section id=\"configuration\">\n<h2>Configuration</h2>\n";
  html += differ.empty() ? "<p>No flag differs.</p>\n"
                         : "<div class=\"scroll\">\n<table class=\"flags\">\n" + head(runs) + differ +
                               "</table>\n</div>\n";
  if (!same.empty())
    html += "<details>\n<summary>Flags that are the same</summary>\n<table class=\"pairs\">\n" + same +
            "</table>\n</details>\n";
  return html + "</section>\n";
}

std::string notes(const std::vector<Record>& runs) {
  std::string items;
  for (const Record& run : runs)
    for (const std::string& line : run.notes)
      items += fmt::format("<li>{}: {}</li>\n", escaped(run.name), escaped(line));
  return items.empty() ? ""
                       : "<section id=\"notes\">\n<h2>Notes</h2>\n<ul>\n" + items + "</ul>\n</section>\n";
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
