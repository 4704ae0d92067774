#pragma once

#include <CLI/CLI.hpp>

namespace athanor::tool {

/// athanor convert IN OUT: converts a network from or to other programs' formats.
void add_convert(CLI::App& app);

}  // namespace athanor::tool
