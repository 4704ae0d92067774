#pragma once

#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "trainer/inference/evaluation.h"
#include "trainer/inference/predictor.h"

// What `athanor predict`, `evaluate` and `serve` print as JSON.

namespace athanor {

/// One line. Names come from files and clients, and may be invalid UTF-8.
inline std::string line_of(const nlohmann::ordered_json& json) {
  return json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + '\n';
}

/// Adds what was asked for to the results of a model with that Results::score(): "precision", and of a model
/// that was compared with its float model "float": {"model", "score", "drop"}.
inline void add_conditions(const Evaluated& of, double score, nlohmann::ordered_json& to) {
  if (!of.precision.empty()) to["precision"] = of.precision;
  if (!of.float_model.empty())
    to["float"] = {{"model", of.float_model}, {"score", of.float_score}, {"drop", of.float_score - score}};
}

/// What a model says of an image. Of a classifier {"top": [{"class", "index", "probability"}]}, most probable
/// first. Of several labels {"labels": [names of those that the image has], "top": [...]} of all, each with
/// "present". Of numbers {"values": {name: number}}.
inline nlohmann::ordered_json json_of(LabelKind task, const std::vector<Guess>& guesses) {
  using Json = nlohmann::ordered_json;
  if (task == LabelKind::values) {
    Json values = Json::object();
    for (const Guess& one : guesses) values[one.name] = double{one.probability};
    return {{"values", std::move(values)}};
  }
  Json top = Json::array(), labels = Json::array();
  for (const Guess& one : guesses) {
    Json& entry = top.emplace_back(
        Json{{"class", one.name}, {"index", one.index}, {"probability", double{one.probability}}});
    if (task == LabelKind::multilabel) entry["present"] = one.present;
    if (one.present) labels.push_back(one.name);
  }
  Json answer;
  if (task == LabelKind::multilabel) answer["labels"] = std::move(labels);
  answer["top"] = std::move(top);
  return answer;
}

}  // namespace athanor
