#include "trainer/report/detail/sections.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include <fmt/format.h>

namespace athanor::report {
namespace {

constexpr std::size_t kRows = 300;  // approximate maximum of a table

std::string section(const char* id, const char* heading, const std::string& body) {
  if (body.empty()) return "";
  return fmt::format("<section id=\"{}\">\n<h2>{}</h2>\n{}</section>\n", id, heading, body);
}

std::string folded(const std::string& summary, const std::string& body) {
  return fmt::format("<details>\n<summary>{}</summary>\n<div class=\"scroll\">\n{}</div>\n</details>\n",
                     summary, body);
}

/// The last epoch's bottleneck in words, and whether other epochs had another.
std::string verdict(const Record& run) {
  if (run.epochs.empty()) return "";
  const std::string line = text(run.epochs.back(), "verdict"), by = text(run.epochs.back(), "bound_by");
  if (line.empty()) return "";
  const auto same = std::count_if(run.epochs.begin(), run.epochs.end(),
                                  [&](const Json& epoch) { return text(epoch, "bound_by") == by; });
  return fmt::format("<p class=\"verdict\">{} <small>(the last epoch; bound by {} in {} of {})</small></p>\n",
                     escaped(line), escaped(by), same, run.epochs.size());
}

std::string table_of(const std::vector<FlagRow>& flags, bool given) {
  std::string rows;
  for (const FlagRow& flag : flags) {
    if (flag.given == given)
      rows += fmt::format("<tr><th scope=\"row\"><code>{}</code></th><td>{}</td></tr>\n", escaped(flag.name),
                          escaped(flag.value));
  }
  return rows.empty() ? "" : "<table class=\"pairs\">\n" + rows + "</table>\n";
}

}  // namespace

std::string times_section(const Record& run) {
  const std::vector<Bar> bars = times_of(run);
  const double whole = std::accumulate(bars.begin(), bars.end(), 0.0,
                                       [](double sum, const Bar& bar) { return sum + bar.value; });
  std::string body = verdict(run);
  if (whole > 0)
    body += seconds_bar(run.times.empty() ? "Seconds of all steps" : "Seconds of the whole run", bars, whole);
  const std::string charts =
      step_chart({run}, "images_per_s") + data_share_chart({run}) + step_chart({run}, "data_wait_s");
  if (!charts.empty()) body += "<div class=\"charts\">\n" + charts + "</div>\n";
  if (const std::string vendor = text(part(run.end, "vendor"), "summary"); !vendor.empty())
    body += fmt::format("<p>{}.</p>\n", escaped(vendor));
  return section("times", "Where the time went", body);
}

std::string memory_section(const Record& run) {
  std::vector<Bar> bars;
  for (const auto& [tag, bytes] : run.memory.items())
    if (const double value = number(run.memory, tag); value > 0) bars.push_back({tag, value});
  std::stable_sort(bars.begin(), bars.end(), [](const Bar& a, const Bar& b) { return a.value > b.value; });
  std::string body;
  if (const double peak = number(run.end, "peak_bytes"); peak > 0)
    body += fmt::format("<p>Peak memory of all tensors together: {}.</p>\n", figure(peak, Format::bytes));
  if (!bars.empty())
    body += bar_list("Peak of each kind of tensor, not all at the same time", bars, Format::bytes);
  return section("memory", "Memory", body);
}

std::string epochs_section(const Record& run) {
  if (run.epochs.empty()) return "";
  std::vector<std::string> keys;
  for (const std::string& name : metric_names({run})) {
    for (const char* const prefix : {"train_", "val_"})
      if (!epoch_points(run, prefix + name).empty()) keys.push_back(prefix + name);
  }
  for (const char* const key : {"learning_rate", "images_per_s", "skipped_steps"}) keys.emplace_back(key);
  std::string rows = "<tr><th scope=\"col\">epoch</th>";
  for (const std::string& key : keys) {
    std::string name = key;
    std::replace(name.begin(), name.end(), '_', ' ');
    rows += fmt::format("<th scope=\"col\">{}</th>", escaped(name));
  }
  rows += "</tr>\n";
  const std::size_t each = (run.epochs.size() + kRows - 1) / kRows;
  for (std::size_t i = 0; i < run.epochs.size(); ++i) {
    if (i % each != 0 && i + 1 != run.epochs.size()) continue;
    const Json& epoch = run.epochs[i];
    rows += fmt::format("<tr><th scope=\"row\">{}</th>", figure(number(epoch, "epoch"), Format::count));
    for (const std::string& key : keys)
      rows += fmt::format("<td>{}</td>",
                          figure(number(epoch, key), key == "images_per_s" ? Format::count : format_of(key)));
    rows += "</tr>\n";
  }
  return folded("All epochs as a table", "<table class=\"numbers\">\n" + rows + "</table>\n");
}

std::string configuration_section(const Record& run) {
  const std::vector<FlagRow> flags = flags_of(run);
  std::string body;
  if (const Json& words = part(run.config, "command"); words.is_array() && !words.empty()) {
    std::string command;
    for (const Json& word : words) command += word.is_string() ? word.get<std::string>() + ' ' : "";
    body += fmt::format("<pre><code>{}</code></pre>\n", escaped(command));
  }
  const std::string given = table_of(flags, true), defaults = table_of(flags, false);
  if (!given.empty()) body += "<h3>Given</h3>\n" + given;
  const auto count =
      std::count_if(flags.begin(), flags.end(), [](const FlagRow& flag) { return !flag.given; });
  if (!defaults.empty()) body += folded(fmt::format("{} defaults", count), defaults);
  if (flags.empty()) body += "<p>This folder has no readable config.json.</p>\n";
  return section("configuration", "Configuration", body);
}

std::string facts_section(const Record& run) {
  std::string rows;
  const auto add = [&](const std::string& name, const std::string& value) {
    if (!value.empty())
      rows += fmt::format("<tr><th scope=\"row\">{}</th><td>{}</td></tr>\n", escaped(name), escaped(value));
  };
  for (const auto& [name, value] : run.facts.items()) add(name, text(run.facts, name));
  add("Athanor", text(run.config, "version"));
  add("Began", text(run.config, "began"));
  add("Page written", run.written);
  return section("machine", "Machine and versions",
                 rows.empty() ? "" : "<table class=\"pairs\">\n" + rows + "</table>\n");
}

std::string notes_section(const Record& run) {
  std::string items;
  for (const std::string& line : run.notes) items += fmt::format("<li>{}</li>\n", escaped(line));
  return section("notes", "Notes", items.empty() ? "" : "<ul>\n" + items + "</ul>\n");
}

}  // namespace athanor::report
