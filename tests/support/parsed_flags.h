#pragma once

#include <cstdlib>
#include <string>
#include <vector>

#include "tests/support/errors.h"
#include "trainer/config.h"

namespace athanor::test {

// Tests make no folders.
inline const bool no_runs = ::setenv("ATHANOR_RUNS_DIR", "none", 1) == 0;

/// What a training program with three models reads of these arguments.
inline TrainerConfig parse(const std::vector<std::string>& arguments) {
  std::vector<const char*> argv{"train"};
  for (const std::string& argument : arguments) argv.push_back(argument.c_str());
  TrainerConfig defaults;
  defaults.program = "train";
  defaults.model = "lenet5";
  defaults.models = {"lenet5", "resnet20", "resnet18_cifar"};
  return parse_flags(static_cast<int>(argv.size()), argv.data(), defaults);
}

/// What is wrong with them; empty where nothing is.
inline std::string refusal(const std::vector<std::string>& arguments) {
  return message_of([&] { parse(arguments); });
}

}  // namespace athanor::test
