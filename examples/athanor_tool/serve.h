#pragma once

#include <CLI/CLI.hpp>

namespace athanor::tool {

/// athanor serve MODEL: the classifier over HTTP. In a build without libmicrohttpd: how to install it.
void add_serve(CLI::App& app);

}  // namespace athanor::tool
