#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "trainer/report/detail/series.h"

// What a report is made of. A page carries its own record, as JSON in a script element, so that a run that is
// resumed goes on with its curves, and scripts find the values that they show.

namespace athanor::report {

using Json = nlohmann::ordered_json;

struct Record {
  std::string name = {};  ///< of the run: its folder, and its phase
  std::string phase = {};
  Json config = {};                          ///< config.json; null where there is none
  Json facts = Json::object();               ///< of data, model and machine: name to text
  std::vector<Json> epochs = {};             ///< as metrics.jsonl has them
  std::map<std::string, Series> steps = {};  ///< "learning_rate", ... by attempted step
  Json times = Json::object();               ///< part of the run to seconds
  Json memory = Json::object();              ///< tag to the most bytes it has held
  Json evaluation = {};                      ///< of the last validation; see mistakes.h
  std::vector<std::string> notes = {};
  Json end = {};             ///< as metrics.jsonl has it; null before
  std::string ended = {};    ///< why, in words; empty: it runs
  std::string written = {};  ///< when, UTC

  /// Forgets what came after so many attempted steps: a run goes on from there.
  void drop_after(double attempted);
};

/// What a validation has measured, by step; at the end of an epoch (not `within` it), only where others have
/// been within epochs.
void add_validation(Record& record, double step, const Json& measured, bool within);

Json json_of(const Record& record);
/// Of what json_of() gave, or of anything: what is no part of a record, or of another type, is left out.
Record record_of(const Json& json);

/// The text of a script element that carries the JSON.
std::string script_json(const Json& json);

/// The runs that a folder holds: one, or one for each phase, in their order. From its metrics.jsonl and
/// config.json, and from its report.html what these do not have. What cannot be read is said in `notes`.
/// Throws IoError where the folder has neither metrics nor a report.
std::vector<Record> read_runs(const std::filesystem::path& folder);

// Values of a JSON object that may be anything: NaN, "" and null where there is none of that type.
double number(const Json& object, std::string_view key);
std::string text(const Json& object, std::string_view key);
const Json& part(const Json& object, std::string_view key);
/// Attempted steps at the end of an epoch.
double attempted(const Json& epoch);

}  // namespace athanor::report
