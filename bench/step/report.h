#pragma once

#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "bench/step/measure.h"

// What bench_step prints and writes. A build that emulates the device has counts and bytes, and no times.

namespace athanor::bench {

/// A row for each kernel, and lines about the step. `copy_roof`: bytes per second of a copy on the device; 0:
/// not measured.
std::string text_of(const StepResult& result, double copy_roof);
nlohmann::json json_of(const StepResult& result, double copy_roof);

/// A row for each signature.
std::string text_of(const StepWorkload& workload, const std::vector<PlanTimes>& plans);
nlohmann::json json_of(const StepWorkload& workload, const std::vector<PlanTimes>& plans);

}  // namespace athanor::bench
