#pragma once

#include <memory>
#include <string>

#include <CLI/CLI.hpp>

#include "data/dataset.h"
#include "trainer/tool/commands.h"

// Subcommands for files of samples.

namespace athanor::tool {

/// A data set to read.
struct DataSource {
  std::string path, part = "train", fields, task = "classify";
};
/// Its flags, --part, --fields and --task.
void add_source_flags(CLI::App& command, DataSource& source);
/// Opens it; reports on stderr if it is first packed into the cache, and what is not used.
std::unique_ptr<Dataset> open_data(const DataSource& source, bool in_process = false);

/// athanor pack SRC DST: converts.
void add_pack(CLI::App& app);
/// athanor verify FILE: reads and decodes everything, and reports damage.
void add_verify(CLI::App& app);

}  // namespace athanor::tool
