// Sections of a run's page; empty without data.

#include <algorithm>
#include <numeric>

#include <fmt/format.h>

#include "trainer/report/detail/page.h"

namespace athanor::report {
namespace {

constexpr std::size_t kRows = 300;  // approximate maximum of a table

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
    if (flag.given == given) rows += row("<code>" + escaped(flag.name) + "</code>", {escaped(flag.value)});
  }
  return table("pairs", rows);
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
  std::vector<std::string> headings{"epoch"};
  for (const std::string& key : keys) {
    headings.push_back(escaped(key));
    std::replace(headings.back().begin(), headings.back().end(), '_', ' ');
  }
  std::string rows = head_row(headings);
  const std::size_t each = (run.epochs.size() + kRows - 1) / kRows;
  for (std::size_t i = 0; i < run.epochs.size(); ++i) {
    if (i % each != 0 && i + 1 != run.epochs.size()) continue;
    const Json& epoch = run.epochs[i];
    std::vector<std::string> cells;
    for (const std::string& key : keys)
      cells.push_back(figure(number(epoch, key), key == "images_per_s" ? Format::count : format_of(key)));
    rows += row(figure(number(epoch, "epoch"), Format::count), cells);
  }
  return folded("All epochs as a table", table("numbers", rows));
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
    if (!value.empty()) rows += row(escaped(name), {escaped(value)});
  };
  for (const auto& [name, value] : run.facts.items()) add(name, text(run.facts, name));
  add("Athanor", text(run.config, "version"));
  add("Began", text(run.config, "began"));
  add("Page written", run.written);
  return section("machine", "Machine and versions", table("pairs", rows));
}

std::string notes_section(const Record& run) {
  std::vector<std::string> items;
  for (const std::string& line : run.notes) items.push_back(escaped(line));
  return section("notes", "Notes", list(items));
}

}  // namespace athanor::report
