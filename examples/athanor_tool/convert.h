#pragma once

#include <CLI/CLI.hpp>

namespace athanor::tool {

/// athanor convert MODEL OUT: the network of a model's file in the form that another program reads.
void add_convert(CLI::App& app);

}  // namespace athanor::tool
