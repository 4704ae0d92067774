#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "data/dataset.h"
#include "trainer/config.h"

namespace athanor::examples {

struct Data {
  std::unique_ptr<Dataset> train, test;
  std::unique_ptr<Dataset> last = {};  ///< measured once, at the end; null: none
  std::vector<Unused> unused = {};     ///< what the program leaves out, beside what the sets say themselves
  bool is_split = false;  ///< both sets were drawn from one: the run's folder keeps which is which
};

/// The body of a training program: parses the flags over `defaults`, opens the data, makes the model of
/// --model for it, trains, and reports. Returns the exit code. `fit_to_data` may change what no flag has set,
/// once the training images are known.
int train(int argc, char** argv, TrainerConfig defaults,
          const std::function<Data(const TrainerConfig&)>& data,
          const std::function<void(TrainerConfig&, const Dataset& train)>& fit_to_data = {});

/// Whether no flag has set it.
bool is_default(const TrainerConfig& config, const std::string& flag);
/// Whether the command line has set it: a recipe may have settings that other flags make idle.
bool is_typed(const TrainerConfig& config, const std::string& flag);
/// Changes only the default that config.json records for it: the caller sets the member.
void record_default(TrainerConfig& config, const std::string& flag, const std::string& value);

}  // namespace athanor::examples
