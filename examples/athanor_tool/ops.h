#pragma once

#include <map>
#include <string>

#include "examples/athanor_tool/arguments.h"

namespace athanor::tool {

/// Reads an op's inputs and attributes by name, and computes its result.
using Op = Tensor (*)(Arguments&);

const std::map<std::string, Op>& op_table();
/// The entries that move elements and compute nothing.
const std::map<std::string, Op>& shape_op_table();

}  // namespace athanor::tool
