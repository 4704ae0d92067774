// The tool `athanor`: one subcommand per thing to do, most of them with a file. Each registers itself.

#include <csignal>
#include <cstdio>
#include <exception>
#include <string>
#include <system_error>
#include <vector>

#include <CLI/CLI.hpp>

#include "examples/athanor_tool/convert.h"
#include "examples/athanor_tool/data_commands.h"
#include "examples/athanor_tool/plan.h"
#include "examples/athanor_tool/predict.h"
#include "examples/athanor_tool/run_op.h"
#include "tensor/error.h"
#include "tensor/nearest.h"
#include "tensor/printable.h"
#include "trainer/run_main.h"

namespace {

int complain(int code, const char* what) {
  std::fprintf(stderr, "athanor: %s\n", athanor::printable(what).c_str());
  return code;
}

/// CLI11 only says that a subcommand is required; this says which one was meant.
void check_subcommand(const CLI::App& app, const std::string& name) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands({})) names.push_back(command->get_name());
  for (const std::string& known : names) {
    if (name == known) return;
  }
  athanor::detail::fail<>("the first argument must be a subcommand ({}), but is '{}'{}",
                          fmt::join(names, ", "), name, athanor::did_you_mean(name, names));
}

int run_tool(int argc, char** argv) try {
  std::signal(SIGXFSZ, SIG_IGN);  // a file that may not grow is an error of the write, not the end
  CLI::App app("Athanor's tool for files");
  app.require_subcommand(1);
  athanor::tool::add_run_op(app);
  athanor::tool::add_pack(app);
  athanor::tool::add_inspect(app);
  athanor::tool::add_verify(app);
  athanor::tool::add_flight(app);
  athanor::tool::add_predict(app);
  athanor::tool::add_convert(app);
  athanor::tool::add_plan(app);

  if (argc < 2 || argv[1][0] != '-') check_subcommand(app, argc < 2 ? "" : argv[1]);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& help) {
    return app.exit(help);
  } catch (const CLI::ParseError& error) {
    return complain(2, error.what());
  }
  return 0;
} catch (const std::system_error& error) {  // fmt's, of a standard output that cannot be written
  return complain(2, error.what());
} catch (const athanor::ArgumentError& error) {
  return complain(2, error.what());
} catch (const athanor::IoError& error) {
  return complain(2, error.what());
} catch (const athanor::tool::SomeUnreadable&) {
  return 2;
} catch (const athanor::tool::Interrupted& error) {
  return complain(128 + error.signal(), error.what());  // as shells have it
} catch (const std::exception& error) {
  return complain(3, error.what());
}

}  // namespace

int main(int argc, char** argv) {
  return athanor::with_standard_files([&] { return run_tool(argc, argv); });
}
