#include "trainer/report/detail/record.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iterator>
#include <limits>

#include <fmt/format.h>

#include "tensor/base/error.h"

namespace athanor::report {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kBegin = "<script type=\"application/json\" id=\"record\">", kEnd = "</script>";
constexpr std::size_t kNotes = 50;

std::string content(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

Json parsed(const std::string& text) {
  Json json = Json::parse(text, nullptr, false);
  return json.is_discarded() ? Json() : json;
}

void note(Record& record, std::string line) {
  if (record.notes.size() < kNotes) record.notes.push_back(std::move(line));
}

/// A step or epoch is repeated without a resume: another run in the same folder.
void begin_anew(Record& record) {
  record = {};
}

/// "skipped_steps" counts them, so that its curve shows when they occurred.
void add_step(Record& record, const Json& line) {
  const double step = number(line, "step");
  if (!record.steps.empty() && step < record.steps.begin()->second.last().x) begin_anew(record);
  for (const auto& [key, value] : line.items()) {
    if (value.is_number() && key != "step" && key != "epoch")
      record.steps[key].add(step, value.get<double>());
  }
  if (const std::string result = text(line, "result"); !result.empty()) {
    Series& skipped = record.steps["skipped_steps"];
    skipped.add(step, skipped.last().y + (result != "applied"));
  }
}

void add_epoch(Record& record, const Json& line) {
  const double epoch = number(line, "epoch");
  if (!std::isfinite(epoch)) return;
  if (!record.epochs.empty() && epoch <= number(record.epochs.back(), "epoch")) begin_anew(record);
  record.epochs.push_back(line);
  add_validation(record, attempted(line), line, false);
}

/// One line of metrics.jsonl.
void add(Record& record, const Json& line) {
  const std::string event = text(line, "event");
  if (event == "epoch") add_epoch(record, line);
  if (event == "step") add_step(record, line);
  if (event == "validation") add_validation(record, number(line, "step"), line, true);
  if (event == "note") note(record, text(line, "text"));
  if (event == "error") record.ended = "error: " + text(line, "text");
  if (event == "end") record.end = line;
  if (event == "resume") record.drop_after(number(line, "attempted_steps"));
}

/// The records in metrics.jsonl, by phase; `damaged`: number of invalid lines.
std::vector<std::pair<std::string, Record>> read_metrics(const fs::path& path, std::size_t& damaged) {
  std::vector<std::pair<std::string, Record>> runs;
  std::ifstream in(path, std::ios::binary);
  for (std::string line; std::getline(in, line);) {
    const Json json = parsed(line);
    if (!json.is_object()) {
      damaged += !line.empty();
      continue;
    }
    const std::string phase = text(json, "phase");
    auto at = std::find_if(runs.begin(), runs.end(), [&](const auto& run) { return run.first == phase; });
    if (at == runs.end()) at = runs.insert(runs.end(), {phase, Record()});
    add(at->second, json);
  }
  return runs;
}

/// The record in a page; null if there is none.
Json page_record(const fs::path& path) {
  const std::string page = content(path);
  const std::size_t begin = page.find(kBegin);
  if (begin == page.npos) return {};
  const std::size_t from = begin + kBegin.size();
  return parsed(page.substr(from, page.find(kEnd, from) - from));
}

/// metrics.jsonl has priority over the run's page, which is written only periodically.
Record joined(Record page, Record lines) {
  if (!lines.epochs.empty()) page.epochs = std::move(lines.epochs);
  for (auto& [name, series] : lines.steps) {
    Series& mine = page.steps[name];
    if (mine.points().size() < series.points().size()) mine = series;
  }
  if (!lines.end.is_null()) page.end = std::move(lines.end);
  if (!lines.ended.empty() && page.ended.empty()) page.ended = std::move(lines.ended);
  if (page.notes.empty()) page.notes = std::move(lines.notes);
  return page;
}

template <class Map> void read_map(const Json& from, Json& to, const Map& keep) {
  if (!from.is_object()) return;
  for (const auto& [key, value] : from.items()) {
    if (keep(value)) to[key] = value;
  }
}

}  // namespace

double number(const Json& object, std::string_view key) {
  const Json& value = part(object, key);
  return value.is_number() ? value.get<double>() : std::numeric_limits<double>::quiet_NaN();
}

std::string text(const Json& object, std::string_view key) {
  const Json& value = part(object, key);
  return value.is_string() ? value.get<std::string>() : std::string();
}

const Json& part(const Json& object, std::string_view key) {
  static const Json kNull;
  if (!object.is_object()) return kNull;
  const auto found = object.find(std::string(key));
  return found == object.end() ? kNull : *found;
}

double attempted(const Json& epoch) {
  return number(epoch, "applied_steps") + number(epoch, "skipped_steps");
}

void Record::drop_after(double step) {
  if (!std::isfinite(step)) return;
  std::erase_if(epochs, [&](const Json& epoch) { return report::attempted(epoch) > step; });
  for (auto& one : steps) one.second.drop_after(step);
  end = {};
  ended.clear();
}

void add_validation(Record& record, double step, const Json& measured, bool within) {
  for (const auto& [key, value] : measured.items()) {
    if (key.starts_with("val_") && value.is_number() && (within || record.steps.contains(key)))
      record.steps[key].add(step, value.get<double>());
  }
}

Json json_of(const Record& record) {
  Json json{{"name", record.name},
            {"config", record.config},
            {"facts", record.facts},
            {"epochs", record.epochs},
            {"times", record.times},
            {"memory", record.memory},
            {"notes", record.notes},
            {"end", record.end},
            {"ended", record.ended},
            {"written", record.written},
            {"evaluation", record.evaluation}};
  Json& steps = json["steps"] = Json::object();
  for (const auto& [name, series] : record.steps) {
    Json& points = steps[name] = Json::array();
    for (const Point& point : series.points())  // from f32: six digits are all they have
      points.push_back({point.x, std::stod(fmt::format("{:.6g}", point.y))});
  }
  return json;
}

Record record_of(const Json& json) {
  Record record;
  record.name = text(json, "name");
  record.config = part(json, "config");
  read_map(part(json, "facts"), record.facts, [](const Json& value) { return value.is_string(); });
  read_map(part(json, "times"), record.times, [](const Json& value) { return value.is_number(); });
  read_map(part(json, "memory"), record.memory, [](const Json& value) { return value.is_number(); });
  for (const Json& epoch : part(json, "epochs")) {
    if (std::isfinite(number(epoch, "epoch"))) record.epochs.push_back(epoch);
  }
  for (const auto& [name, points] : part(json, "steps").items()) {
    for (const Json& point : points) {
      if (point.is_array() && point.size() == 2 && point[0].is_number() && point[1].is_number())
        record.steps[name].add(point[0].get<double>(), point[1].get<double>());
    }
  }
  for (const Json& line : part(json, "notes")) {
    if (line.is_string()) note(record, line.get<std::string>());
  }
  record.evaluation = part(json, "evaluation");
  record.end = part(json, "end");
  record.ended = text(json, "ended");
  record.written = text(json, "written");
  return record;
}

std::string script_json(const Json& json) {
  std::string safe;
  for (const char c : json.dump(-1, ' ', false, Json::error_handler_t::replace))
    safe += c == '<' ? "\\u003c" : std::string(1, c);  // otherwise a text could end the script
  return fmt::format("{}{}{}\n", kBegin, safe, kEnd);
}

std::vector<Record> read_runs(const fs::path& folder) {
  std::size_t damaged = 0;
  auto lines = read_metrics(folder / "metrics.jsonl", damaged);
  const Json config = parsed(content(folder / "config.json"));
  std::error_code ignored;
  const bool has_config = fs::exists(folder / "config.json", ignored);
  if (lines.empty()) lines.push_back({"", Record()});
  std::vector<Record> runs;
  bool any = damaged > 0 || fs::exists(folder / "metrics.jsonl", ignored);
  for (auto& [phase, run] : lines) {
    const fs::path page = folder / phase / "report.html";
    const Json carried = phase.find_first_of("/.") == phase.npos ? page_record(page) : Json();
    any |= carried.is_object();
    Record record = joined(record_of(carried), std::move(run));
    if (config.is_object()) record.config = config;
    record.phase = phase;
    record.name = folder.string() + (phase.empty() ? "" : ", " + phase);
    if (has_config && !config.is_object()) note(record, "config.json is damaged and was ignored");
    if (damaged > 0)
      note(record, fmt::format("{} lines of metrics.jsonl are damaged and were ignored", damaged));
    if (record.epochs.empty() && record.steps.empty()) note(record, "nothing has been measured yet");
    runs.push_back(std::move(record));
  }
  if (!any)
    detail::fail<IoError>(
        "report: {} must be the folder of a run, with metrics.jsonl or report.html, but has neither",
        folder.string());
  return runs;
}

}  // namespace athanor::report
