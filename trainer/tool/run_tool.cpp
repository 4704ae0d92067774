#include <csignal>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <new>
#include <string>
#include <system_error>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/ranges.h>

#include "data/defects.h"
#include "tensor/error.h"
#include "tensor/nearest.h"
#include "tensor/printable.h"
#include "trainer/detail/terminal.h"
#include "trainer/run_main.h"
#include "trainer/tool/commands.h"
#include "trainer/tool/tool_main.h"

namespace athanor::tool {
namespace {

/// CLI11 only reports that a subcommand is required; this suggests one.
void check_subcommand(const CLI::App& app, const std::string& name) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands({})) names.push_back(command->get_name());
  for (const std::string& known : names) {
    if (name == known) return;
  }
  detail::fail<>("the first argument must be a subcommand ({}), but is '{}'{}", fmt::join(names, ", "), name,
                 did_you_mean(name, names));
}

/// CLI11 prints each description on one line, however long.
void wrap_help(CLI::App& app) {
  constexpr int kBesideNames = terminal::kColumns - 30;  // CLI11's width for names
  for (CLI::Option* option : app.get_options())
    option->description(terminal::wrapped(option->get_description(), kBesideNames, 0));
  app.footer(terminal::wrapped(app.get_footer(), terminal::kColumns, 0));
  for (CLI::App* command : app.get_subcommands({})) {
    command->description(terminal::wrapped(command->get_description(), kBesideNames, 0));
    wrap_help(*command);
  }
}

int run(int argc, char** argv, const std::string& program, const AddCommands& add) {
  const auto complain = [&](int code, const char* what) {
    std::fprintf(stderr, "%s\n", terminal::line_for(stderr, program + ": " + printable(what)).c_str());
    return code;
  };
  try {
    std::signal(SIGXFSZ, SIG_IGN);  // a file above the size limit makes the write fail instead
    CLI::App app("What to do with models and data", program);
    app.set_version_flag("--version", version_line(program), "Print the version and exit");
    app.require_subcommand(1);
    add(app);
    wrap_help(app);
    if (argc < 2 || argv[1][0] != '-') check_subcommand(app, argc < 2 ? "" : argv[1]);
    try {
      app.parse(argc, argv);
    } catch (const CLI::Success& help) {
      return app.exit(help);
    } catch (const CLI::ParseError& error) {
      return complain(kExitBadInput, error.what());
    }
    return kExitDone;
  } catch (const std::system_error& error) {  // from fmt, if standard output cannot be written
    return complain(kExitBadInput, error.what());
  } catch (const ArgumentError& error) {
    return complain(kExitBadInput, error.what());
  } catch (const UnreadableSamplesError& error) {
    std::fprintf(stderr, "%s: %s\n", program.c_str(), error.what());  // a line for each
    return kExitBadInput;
  } catch (const IoError& error) {
    return complain(kExitBadInput, error.what());
  } catch (const SomeUnreadable&) {
    return kExitBadInput;
  } catch (const Interrupted& error) {
    return complain(128 + error.signal(), error.what());  // as in shells
  } catch (const std::bad_alloc&) {
    return complain(kExitBackend, "out of memory: the system has no more");
  } catch (const std::exception& error) {
    return complain(kExitBackend, error.what());
  }
}

}  // namespace

int run_tool(int argc, char** argv, const AddCommands& add) {
  const std::string program =
      argc > 0 ? printable(std::filesystem::path(argv[0]).filename().string()) : "athanor";
  return with_standard_files([&] { return run(argc, argv, program, add); });
}

}  // namespace athanor::tool
