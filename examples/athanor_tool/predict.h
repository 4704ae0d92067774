#pragma once

#include <CLI/CLI.hpp>

namespace athanor::tool {

/// athanor predict MODEL IMAGE...: what a model that a run has left says of pictures.
void add_predict(CLI::App& app);

}  // namespace athanor::tool
