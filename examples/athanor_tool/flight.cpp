#include <memory>
#include <string>

#include <fmt/format.h>

#include "dist/watch/flight_report.h"
#include "examples/athanor_tool/data_commands.h"

namespace athanor::tool {

void add_flight(CLI::App& app) {
  CLI::App* const command =
      app.add_subcommand("flight", "Says from the records of all ranks who is to blame that a job ended");
  const auto folder = std::make_shared<std::string>();
  command->add_option("DIR", *folder, "The run's folder, with flight.0.json, flight.1.json, ...")->required();
  command->callback([folder] { fmt::print("{}", dist::read_flight(*folder).str()); });
}

}  // namespace athanor::tool
