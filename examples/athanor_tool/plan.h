#pragma once

#include <CLI/CLI.hpp>

namespace athanor::tool {

/// athanor plan MODEL --devices N: bytes per rank with DDP and with ZeRO-1, without starting a run.
void add_plan(CLI::App& app);

}  // namespace athanor::tool
