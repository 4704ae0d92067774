#pragma once

#include <string>

#include "trainer/plan/step_account.h"

namespace athanor::tool {

/// A table of kernels by layer and pass, one of kernels alone, and the sum.
std::string text_of(const StepAccount& account, const StepPlan& plan, const Gpu& gpu);
/// {"prediction":true,...,"total":{"launches","bytes","flops","seconds",...},"layers":[{...},...]}
std::string json_of(const StepAccount& account, const StepPlan& plan, const Gpu& gpu);

}  // namespace athanor::tool
