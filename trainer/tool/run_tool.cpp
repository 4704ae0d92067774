#include <algorithm>
#include <csignal>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <map>
#include <new>
#include <string>
#include <system_error>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/ranges.h>

#include "data/defects.h"
#include "tensor/base/error.h"
#include "tensor/base/nearest.h"
#include "tensor/base/printable.h"
#include "trainer/detail/terminal.h"
#include "trainer/flags/detail/spellings.h"
#include "trainer/run_main.h"
#include "trainer/tool/commands.h"
#include "trainer/tool/tool_main.h"

namespace athanor::tool {
namespace {

std::map<std::string, void (*)(CLI::App&)>& commands() {
  static std::map<std::string, void (*)(CLI::App&)> all;
  return all;
}

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

std::vector<std::string> flags_of(const CLI::App& command) {
  std::vector<std::string> names;
  for (const CLI::Option* option : command.get_options()) {
    for (const std::string& known : option->get_lnames()) names.push_back("--" + known);
  }
  return names;
}

/// What CLI11 reports about the arguments of a command, with the flag that may be meant, and where to look.
std::string explain(const CLI::App& app, const std::string& program, const CLI::ParseError& error) {
  const std::vector<CLI::App*> commands = app.get_subcommands();
  if (commands.empty()) return fmt::format("{}; see {} --help", error.what(), program);
  const CLI::App& command = *commands.front();
  std::string what = error.what();
  if (const std::vector<std::string> extras = command.remaining(); !extras.empty()) {
    what = extras[0].starts_with("-")
               ? fmt::format("there is no flag '{}'{}", extras[0], did_you_mean(extras[0], flags_of(command)))
               : fmt::format("takes no further argument, but got '{}'", extras[0]);
  } else if (dynamic_cast<const CLI::ConversionError*>(&error)) {
    what += ", which must be a number";
  }
  return fmt::format("{}: {}; see {} {} --help", command.get_name(), what, program, command.get_name());
}

/// The arguments in our spelling, "--batch-size" for "--batch_size", in the reverse order that CLI11 takes.
std::vector<std::string> words_of(const CLI::App& app, int argc, char** argv) {
  std::vector<std::string> words(argv + std::min(argc, 1), argv + argc);
  for (const CLI::App* command : app.get_subcommands({})) {
    if (!words.empty() && words[0] == command->get_name()) words = translate_flags(words, flags_of(*command));
  }
  std::reverse(words.begin(), words.end());
  return words;
}

int run(int argc, char** argv, const std::string& program, const AddCommands& add) {
  const auto complain = [&](int code, const char* what) {
    terminal::say(stderr, program + ": " + printable(what));
    return code;
  };
  try {
    std::signal(SIGXFSZ, SIG_IGN);  // a file above the size limit makes the write fail instead
    CLI::App app("What to do with models and data", program);
    app.set_version_flag("--version", version_line(program), "Print the version and exit");
    app.require_subcommand(1);
    add(app);
    for (const auto& [name, add_command] : commands()) add_command(app);
    wrap_help(app);
    if (argc < 2 || argv[1][0] != '-') check_subcommand(app, argc < 2 ? "" : argv[1]);
    try {
      app.parse(words_of(app, argc, argv));
    } catch (const CLI::Success& help) {
      return app.exit(help);
    } catch (const CLI::ParseError& error) {
      return complain(kExitBadInput, explain(app, program, error).c_str());
    }
    return kExitDone;
  } catch (const std::system_error& error) {  // from fmt, if standard output cannot be written
    return complain(kExitBadInput, error.what());
  } catch (const ArgumentError& error) {
    return complain(kExitBadInput, error.what());
  } catch (const UnreadableSamplesError& error) {
    terminal::say(stderr, program + ": " + error.what());  // a line for each
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

Command::Command(const char* name, void (*add)(CLI::App& app)) {
  commands()[name] = add;
}

int run_tool(int argc, char** argv, const AddCommands& add) {
  const std::string program =
      argc > 0 ? printable(std::filesystem::path(argv[0]).filename().string()) : "athanor";
  return with_standard_files([&] { return run(argc, argv, program, add); });
}

}  // namespace athanor::tool
