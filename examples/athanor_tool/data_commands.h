#pragma once

#include <memory>
#include <string>

#include <CLI/CLI.hpp>

#include "data/dataset.h"
#include "trainer/tool/commands.h"

// Subcommands for files of samples.

namespace athanor::tool {

/// Opens FILE; reports on stderr if it is first packed into the cache.
std::unique_ptr<Dataset> open_data(const std::string& path, const std::string& part);

/// athanor pack SRC DST: converts.
void add_pack(CLI::App& app);
/// athanor inspect FILE: shows its content.
void add_inspect(CLI::App& app);
/// athanor verify FILE: reads and decodes everything, and reports damage.
void add_verify(CLI::App& app);
/// athanor flight DIR: why a job of several ranks ended.
void add_flight(CLI::App& app);

}  // namespace athanor::tool
