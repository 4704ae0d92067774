// Figures shared by the pages of one run and of several.

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <utility>

#include <fmt/format.h>

#include "trainer/metric_sums.h"
#include "trainer/report/detail/page.h"

namespace athanor::report {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

struct StepChart {
  const char *key, *title;
  Format format;
};
constexpr std::array<StepChart, 10> kStepCharts{{
    {"learning_rate", "Learning rate", Format::plain},
    {"grad_norm", "Gradient norm", Format::plain},
    {"loss_scale", "Loss scale", Format::count},
    {"skipped_steps", "Skipped steps so far", Format::count},
    {"images_per_s", "Images per second", Format::count},
    {"data_wait_s", "Wait for data per step", Format::seconds},
    {"train_loss", "Training loss by step", Format::plain},
    {"train_accuracy", "Training accuracy by step", Format::share},
    {"val_loss", "Validation loss by step", Format::plain},
    {"val_accuracy", "Validation accuracy by step", Format::share},
}};

bool is_flat(const std::vector<Point>& points) {
  return std::all_of(points.begin(), points.end(), [&](const Point& one) { return one.y == points[0].y; });
}

/// A value that is constant over steps needs no curve.
bool tells_nothing(const std::string& key, const std::vector<Point>& points) {
  return (key == "loss_scale" || key == "skipped_steps" || key == "data_wait_s") && is_flat(points);
}

/// A value shown as a height from zero, not as a ratio.
bool begins_at_zero(const std::string& key) {
  return key == "learning_rate" || key == "skipped_steps" || key == "images_per_s" || key == "data_wait_s";
}

/// A value of epochs, at each epoch's last step.
std::vector<Point> end_points(const Record& run, const std::string& key) {
  std::vector<Point> points;
  for (const Json& epoch : run.epochs) {
    const Point point{attempted(epoch), number(epoch, key)};
    if (std::isfinite(point.x + point.y)) points.push_back(point);
  }
  return points;
}

/// Speeds of single steps scatter: their means are in front; several runs show only the means.
std::string chart_called(const std::vector<Record>& runs, const std::string& key, const char* title,
                         Format format) {
  const bool scatters = key == "images_per_s", alone = runs.size() == 1;
  Chart chart{.title = title, .format = format, .from_zero = begins_at_zero(key)};
  const std::vector<std::string> labels = labels_of(runs);
  bool tells = false;
  const auto add = [&](std::size_t run, bool by_step, std::string label, bool faint) {
    std::vector<Point> points = by_step ? step_points(runs[run], key) : end_points(runs[run], key);
    tells |= !tells_nothing(key, points);
    chart.curves.push_back({.label = std::move(label),
                            .points = std::move(points),
                            .colour = static_cast<int>(run),
                            .source = fmt::format("{}/{}/{}", run, by_step ? "steps" : "ends", key),
                            .dots = !by_step,
                            .faint = faint});
  };
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const bool by_step = runs[i].steps.contains(key);
    if (by_step && (alone || !scatters))
      add(i, true, !alone ? labels[i] : scatters ? "each step" : title, scatters);
    if (scatters || (!by_step && (key == "learning_rate" || key == "loss_scale" || key == "skipped_steps")))
      add(i, false, !alone ? labels[i] : by_step ? "mean" : title, false);
  }
  return tells ? html_of(chart) : "";
}

}  // namespace

std::vector<std::string> metric_names(const std::vector<Record>& runs) {
  std::vector<std::string> names{"loss", "accuracy"};
  for (const Record& run : runs) {
    for (const Json& epoch : run.epochs) {
      for (const auto& [key, value] : epoch.items()) {
        const std::size_t skip = key.starts_with("train_") ? 6 : key.starts_with("val_") ? 4 : key.npos;
        if (skip == key.npos || !value.is_number() || is_threshold(key)) continue;
        if (std::find(names.begin(), names.end(), key.substr(skip)) == names.end())
          names.push_back(key.substr(skip));
      }
    }
  }
  return names;
}

std::vector<Point> epoch_points(const Record& run, const std::string& key) {
  std::vector<Point> points;
  for (const Json& epoch : run.epochs)
    if (const double value = number(epoch, key); std::isfinite(value))
      points.push_back({number(epoch, "epoch"), value});
  return points;
}

std::vector<Point> step_points(const Record& run, const std::string& key) {
  const auto found = run.steps.find(key);
  return found == run.steps.end() ? std::vector<Point>() : found->second.points();
}

std::string data_share_chart(const std::vector<Record>& runs) {
  Chart chart{.title = "Share of the step spent on data",
              .format = Format::share,
              .x_name = "epoch",
              .from_zero = true};
  const std::vector<std::string> labels = labels_of(runs);
  for (std::size_t i = 0; i < runs.size(); ++i) {
    Curve curve{.label = labels[i],
                .colour = static_cast<int>(i),
                .source = fmt::format("{}/data_share/", i),
                .dots = true};
    for (const Json& epoch : runs[i].epochs) {
      double whole = 0;
      const Json& times = part(epoch, "times_s");
      if (!times.is_object()) continue;
      for (const auto& [name, value] : times.items())
        if (name != "other" && value.is_number()) whole += value.get<double>();
      const double share = number(times, "data") / whole;
      if (std::isfinite(share)) curve.points.push_back({number(epoch, "epoch"), share});
    }
    chart.curves.push_back(std::move(curve));
  }
  return html_of(chart);
}

Format format_of(const std::string& key) {
  return key.find("accuracy") != key.npos ? Format::share : Format::plain;
}

std::string step_chart(const std::vector<Record>& runs, const std::string& key) {
  const auto* const known = std::find_if(kStepCharts.begin(), kStepCharts.end(),
                                         [&](const StepChart& one) { return one.key == key; });
  if (known == kStepCharts.end()) return chart_called(runs, key, key.c_str(), Format::plain);
  return chart_called(runs, key, known->title, known->format);
}

std::string other_step_charts(const std::vector<Record>& runs) {
  std::vector<std::string> keys;
  for (const Record& run : runs) {
    for (const auto& [key, series] : run.steps) {
      const bool known = std::any_of(kStepCharts.begin(), kStepCharts.end(),
                                     [&key = key](const StepChart& one) { return one.key == key; });
      if (!known && !is_of_class(key) && std::find(keys.begin(), keys.end(), key) == keys.end())
        keys.push_back(key);
    }
  }
  std::string html;
  for (const std::string& key : keys) html += step_chart(runs, key);
  return html;
}

std::vector<FlagRow> flags_of(const Record& run) {
  std::vector<FlagRow> rows;
  const Json& flags = part(run.config, "flags");
  if (!flags.is_object()) return rows;
  for (const auto& [name, flag] : flags.items())
    rows.push_back({name, text(flag, "value"), text(flag, "from") != "default"});
  return rows;
}

std::string ending_of(const Record& run) {
  if (!run.ended.empty()) return run.ended;
  const std::string by = text(run.end, "stopped_by");
  if (by == "epochs") return "finished: all epochs are done";
  if (by == "max_steps") return "finished: --max-steps is reached";
  if (by == "max_time") return "finished: --max-time is used up";
  if (by == "early_stop") return "stopped early";
  if (by == "signal") return "stopped by a signal";
  if (by == "diverged") return "diverged";
  return by.empty() ? "still running, or killed" : by;
}

double last_value(const Record& run, const std::string& metric) {
  const double tested = number(run.end, "test_" + metric);
  if (std::isfinite(tested) || run.epochs.empty()) return tested;
  return number(run.epochs.back(), "val_" + metric);
}

Best best_of(const Record& run, const std::string& key) {
  const bool least = key.ends_with("loss") || key.ends_with("error");
  Best best{kNaN, kNaN};
  for (const Point& point : epoch_points(run, key)) {
    if (std::isnan(best.value) || (least ? point.y < best.value : point.y > best.value))
      best = {point.y, point.x};
  }
  return best;
}

std::vector<Bar> times_of(const Record& run) {
  std::vector<Bar> bars;
  const auto add = [&](const Json& times) {
    if (!times.is_object()) return;
    for (const auto& [name, value] : times.items()) {
      const double seconds = number(times, name);
      if (!std::isfinite(seconds) || seconds <= 0) continue;
      const auto at = std::find_if(bars.begin(), bars.end(),
                                   [&name = name](const Bar& bar) { return bar.label == name; });
      at == bars.end() ? bars.push_back({name, seconds}) : void(at->value += seconds);
    }
  };
  add(run.times);
  if (!run.times.empty()) return bars;
  for (const Json& epoch : run.epochs) add(part(epoch, "times_s"));  // without validation and saving
  return bars;
}

std::vector<std::string> labels_of(const std::vector<Record>& runs) {
  constexpr std::size_t kMax = 24;
  std::vector<std::string> names;
  for (const Record& run : runs) {
    names.push_back(run.name);
    while (names.back().ends_with("/")) names.back().pop_back();
  }
  std::size_t shared = names.empty() ? 0 : names[0].rfind('/') + 1;  // length of the common folders
  while (shared > 0 && !std::all_of(names.begin(), names.end(), [&](const std::string& name) {
           return name.compare(0, shared, names[0], 0, shared) == 0;
         }))
    shared = shared < 2 ? 0 : names[0].rfind('/', shared - 2) + 1;
  for (std::string& name : names) {
    name.erase(0, shared);
    if (name.size() > kMax) name = "…" + name.substr(name.size() - kMax);
  }
  return names;
}

}  // namespace athanor::report
