#pragma once

#include <functional>
#include <memory>

#include "data/dataset.h"
#include "trainer/config.h"

namespace athanor::examples {

struct Data {
  std::unique_ptr<Dataset> train, test;
};

/// The body of a training program: reads the flags over `defaults`, gets the data, makes the model of
/// --model for it, trains, and reports. Returns the exit code.
int train(int argc, char** argv, TrainerConfig defaults,
          const std::function<Data(const TrainerConfig&)>& data);

}  // namespace athanor::examples
