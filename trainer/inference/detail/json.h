#pragma once

#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "trainer/inference/predictor.h"

// What `athanor predict`, `evaluate` and `serve` print as JSON.

namespace athanor {

/// One line. Names come from files and clients, and may be invalid UTF-8.
inline std::string line_of(const nlohmann::ordered_json& json) {
  return json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + '\n';
}

/// [{"class", "index", "probability"}], most probable first.
inline nlohmann::ordered_json json_of(const std::vector<Guess>& guesses) {
  auto all = nlohmann::ordered_json::array();
  for (const Guess& one : guesses)
    all.push_back({{"class", one.name}, {"index", one.index}, {"probability", double{one.probability}}});
  return all;
}

}  // namespace athanor
