#include <filesystem>
#include <memory>
#include <string>

#include <fmt/format.h>

#include "examples/athanor_tool/data_commands.h"
#include "examples/athanor_tool/flight_report.h"
#include "trainer/tool/tool_main.h"

namespace athanor::tool {

namespace {

namespace fs = std::filesystem;

/// The folder of the records: for a run's folder, that of its checkpoints.
fs::path folder_of(const fs::path& given) {
  std::error_code ignored;
  const fs::path within = given / "checkpoints";
  for (const auto& entry : fs::directory_iterator(within, ignored)) {
    if (entry.path().filename().string().starts_with("flight.")) return within;
  }
  return given;
}

void add_flight(CLI::App& app) {
  CLI::App* const command =
      app.add_subcommand("flight", "Names the rank that ended a job, and why, from all ranks' records");
  const auto folder = std::make_shared<std::string>();
  command->add_option("DIR", *folder, "The run's folder, or the one with flight.0.json, flight.1.json, ...")
      ->required();
  command->callback([folder] { fmt::print("{}", read_flight(folder_of(*folder)).str()); });
}

const Command flight_command("flight", add_flight);

}  // namespace
}  // namespace athanor::tool
