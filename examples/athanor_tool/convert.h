#pragma once

#include <CLI/CLI.hpp>

namespace athanor::tool {

/// athanor convert IN OUT: weights of one program's file in another's.
void add_convert(CLI::App& app);

}  // namespace athanor::tool
