#include <memory>
#include <string>

#include <fmt/format.h>

#include "examples/athanor_tool/data_commands.h"
#include "examples/athanor_tool/flight_report.h"

namespace athanor::tool {

void add_flight(CLI::App& app) {
  CLI::App* const command =
      app.add_subcommand("flight", "Says from the records of all ranks who is to blame that a job ended");
  const auto folder = std::make_shared<std::string>();
  command->add_option("DIR", *folder, "The run's folder, with flight.0.json, flight.1.json, ...")->required();
  command->callback([folder] { fmt::print("{}", read_flight(*folder).str()); });
}

}  // namespace athanor::tool
