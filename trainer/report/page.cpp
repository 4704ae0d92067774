#include "trainer/report/detail/page.h"

#include <cmath>

#include <fmt/format.h>

#include "trainer/metric_sums.h"
#include "trainer/report/detail/mistakes.h"

namespace athanor::report {
namespace {

std::string flag(const Record& run, const std::string& name) {
  return text(part(part(run.config, "flags"), name), "value");
}

/// "resnet20", or another name of the run's model.
std::string subject(const Record& run) {
  if (const std::string model = text(run.facts, "Network"); !model.empty()) return model;
  if (const std::string model = flag(run, "--model"); !model.empty()) return model;
  const std::string program = text(run.config, "program");
  return program.empty() ? "A run" : program;
}

std::string tile(const std::string& value, const std::string& label, const std::string& more = {}) {
  return fmt::format("<div><dt>{}</dt><dd>{}{}</dd></div>\n", escaped(label), escaped(value),
                     more.empty() ? "" : fmt::format(" <small>{}</small>", escaped(more)));
}

/// The last value of a metric, and the best one if different.
std::string metric_tile(const Record& run, const std::string& name, const std::string& label) {
  const double value = last_value(run, name);
  if (!std::isfinite(value)) return "";
  const Best best = best_of(run, "val_" + name);
  const Format format = format_of(name);
  const bool other = std::isfinite(best.value) && best.value != value;
  return tile(figure(value, format), label,
              other ? fmt::format("best {} in epoch {}", figure(best.value, format), best.epoch) : "");
}

std::string tiles(const Record& run) {
  std::string html = metric_tile(run, "accuracy", "Accuracy") + metric_tile(run, "loss", "Loss");
  if (html.empty()) {
    for (const std::string& name : metric_names({run}))
      if (!is_of_class(name)) html += metric_tile(run, name, name);
  }
  const double wall = number(run.end, "wall_s"), speed = number(run.end, "images_per_s"),
               applied = number(run.end, "applied_steps"), skipped = number(run.end, "skipped_steps");
  if (std::isfinite(wall)) html += tile(figure(wall, Format::seconds), "Time");
  if (std::isfinite(speed)) html += tile(figure(speed, Format::count), "Images per second");
  if (std::isfinite(applied))
    html += tile(figure(applied, Format::count), "Steps",
                 skipped > 0 ? figure(skipped, Format::count) + " skipped" : "");
  if (run.end.is_null() && !run.epochs.empty())
    html += tile(figure(number(run.epochs.back(), "epoch"), Format::count), "Epochs so far");
  return html.empty() ? "" : "<dl class=\"tiles\">\n" + html + "</dl>\n";
}

/// What has no chart: figures of single classes, of one epoch, or beyond the first few.
std::string metric_table(const Record& run, const std::vector<std::string>& names) {
  std::string rows;
  for (const std::string& name : names) {
    const Format format = format_of(name);
    const auto last = [&](const char* prefix) {
      const std::vector<Point> points = epoch_points(run, prefix + name);
      return points.empty() ? "-" : figure(points.back().y, format);
    };
    const Best best = best_of(run, "val_" + name);
    rows += row(escaped(name), {last("train_"), last("val_"),
                                std::isfinite(best.value)
                                    ? fmt::format("{} in epoch {}", figure(best.value, format), best.epoch)
                                    : "-"});
  }
  if (rows.empty()) return "";
  return scrolled(table("numbers", head_row({"metric", "training", "validation", "best validation"}) + rows));
}

/// A chart of each metric, and a table of those without.
std::string metric_figures(const Record& run) {
  constexpr std::size_t kCharts = 8;
  std::string html;
  std::size_t charts = 0;
  std::vector<std::string> without;
  for (const std::string& name : metric_names({run})) {
    Chart chart{.title = name, .format = format_of(name), .x_name = "epoch"};
    if (name == "loss" || name == "accuracy") chart.title[0] = static_cast<char>(chart.title[0] - 'a' + 'A');
    int colour = 0;
    for (const char* const prefix : {"train", "val"}) {
      const std::string key = fmt::format("{}_{}", prefix, name);
      if (std::vector<Point> points = epoch_points(run, key); !points.empty())
        chart.curves.push_back({.label = prefix,
                                .points = std::move(points),
                                .colour = colour,
                                .source = "0/epochs/" + key,
                                .dots = true});
      ++colour;
    }
    const std::string drawn = is_of_class(name) || charts == kCharts ? "" : html_of(chart);
    if (drawn.empty() && !chart.curves.empty()) without.push_back(name);
    if (!drawn.empty()) ++charts;
    html += drawn;
  }
  if (!html.empty()) html = "<div class=\"charts large\">\n" + html + "</div>\n";
  return html + metric_table(run, without);
}

std::string curves_section(const Record& run) {
  const std::vector<Record> alone{run};
  std::string steps;
  for (const char* const key : {"train_loss", "train_accuracy", "val_loss", "val_accuracy", "learning_rate",
                                "grad_norm", "loss_scale", "skipped_steps"})
    steps += step_chart(alone, key);
  steps += other_step_charts(alone);
  std::string body = metric_figures(run);
  if (!steps.empty()) body += "<div class=\"charts\">\n" + steps + "</div>\n";
  return section("curves", "Curves", body + epochs_section(run));
}

std::string header(const Record& run) {
  const bool runs = run.end.is_null() && run.ended.empty();
  std::string line;
  for (const char* const fact : {"Program", "Data"})
    if (const std::string value = text(run.facts, fact); !value.empty())
      line += (line.empty() ? "" : " · ") + escaped(value);
  return fmt::format(
      "<header>\n<p class=\"over\">{}</p>\n<h1>{}</h1>\n{}<p><span "
      "class=\"badge{}\">{}</span>{}</p>\n{}</header>\n",
      escaped(run.name), escaped(subject(run)), line.empty() ? "" : "<p>" + line + "</p>\n",
      runs ? " live" : "", escaped(ending_of(run)),
      runs ? fmt::format(
                 " as of {} <a href=\"#follow\" class=\"follow\" hidden=\"hidden\">reload automatically</a>",
                 escaped(run.written))
           : "",
      tiles(run));
}

}  // namespace

std::string page_of(const Record& run) {
  const std::string body = header(run) + "<main>\n" + curves_section(run) + times_section(run) +
                           mistakes_section(run.evaluation) + memory_section(run) + notes_section(run) +
                           configuration_section(run) + facts_section(run) + "</main>\n";
  return whole_page(fmt::format("{} – {}", subject(run), run.name), body, script_json(json_of(run)));
}

}  // namespace athanor::report
