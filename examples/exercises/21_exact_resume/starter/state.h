#pragma once

#include <map>
#include <stdexcept>
#include <string>

#include "training.h"

using State = std::map<std::string, std::string>;

inline State save(const Training& training) {
  return {{"weight_0", std::to_string(training.weights[0])},
          {"weight_1", std::to_string(training.weights[1])}};
}

inline void load(Training& training, const State& state) {
  training.weights = {std::stod(state.at("weight_0")), std::stod(state.at("weight_1"))};
}
