#pragma once

#include <CLI/CLI.hpp>

namespace athanor::tool {

/// athanor convert IN OUT: a network from or for other programs.
void add_convert(CLI::App& app);

}  // namespace athanor::tool
