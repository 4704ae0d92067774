#pragma once

#include <CLI/CLI.hpp>

namespace athanor::tool {

/// athanor serve MODEL: the classifier behind HTTP. Of a build without libmicrohttpd: what to install.
void add_serve(CLI::App& app);

}  // namespace athanor::tool
