#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "trainer/report/detail/series.h"

// The data of a report. A page contains its own record as JSON in a script element, so that a resumed run
// continues its curves, and scripts can look up values.

namespace athanor::report {

using Json = nlohmann::ordered_json;

struct Record {
  std::string name = {};  ///< of the run: its folder, and its phase
  std::string phase = {};
  Json config = {};                          ///< config.json; null if missing
  Json facts = Json::object();               ///< on data, model and machine: name to text
  std::vector<Json> epochs = {};             ///< as in metrics.jsonl
  std::map<std::string, Series> steps = {};  ///< "learning_rate", ... by attempted step
  Json times = Json::object();               ///< part of the run to seconds
  Json memory = Json::object();              ///< tag to peak bytes
  Json evaluation = {};                      ///< of the last validation; see mistakes.h
  std::vector<std::string> notes = {};
  Json end = {};             ///< as in metrics.jsonl; null before the end
  std::string ended = {};    ///< why, in words; empty: still running
  std::string written = {};  ///< when, UTC

  /// Removes everything after this many attempted steps, where a run resumes.
  void drop_after(double attempted);
};

/// Adds the measurements of a validation, by step. At the end of an epoch (not `within` it) only if there
/// were others within epochs.
void add_validation(Record& record, double step, const Json& measured, bool within);

Json json_of(const Record& record);
/// The record in json_of()'s result, or in any JSON; unknown or mistyped parts are ignored.
Record record_of(const Json& json);

/// The text of a script element with the JSON.
std::string script_json(const Json& json);

/// The runs of a folder: one, or one per phase, in order. Reads metrics.jsonl and config.json, and the rest
/// from report.html. `notes` lists unreadable parts. Throws IoError if the folder has neither metrics nor a
/// report.
std::vector<Record> read_runs(const std::filesystem::path& folder);

// Values of an arbitrary JSON object: NaN, "" and null if there is none of that type.
double number(const Json& object, std::string_view key);
std::string text(const Json& object, std::string_view key);
const Json& part(const Json& object, std::string_view key);
/// Attempted steps at the end of an epoch.
double attempted(const Json& epoch);

}  // namespace athanor::report
