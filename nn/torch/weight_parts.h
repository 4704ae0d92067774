#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace athanor {

/// Where in a file, or in a state, its weights were found.
struct WeightParts {
  std::vector<std::string> names = {};  ///< of all parts that hold weights, the one taken first; or empty
  bool averaged = false;                ///< the one taken is a running average (EMA), others are not
};

/// Whether a part's name says that it is a running average of weights: "state_dict_ema", "model_ema",
/// "swa_model".
bool names_average(std::string_view name);

}  // namespace athanor
