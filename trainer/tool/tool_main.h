#pragma once

#include <functional>

namespace CLI {
class App;
}

namespace athanor {

namespace tool {

/// Adds subcommands to the app, as trainer/tool/commands.h does.
using AddCommands = std::function<void(CLI::App& app)>;

/// A subcommand that its own source file adds to the program it is linked into:
///
///     const Command plan("plan", add_plan);
class Command {
 public:
  Command(const char* name, void (*add)(CLI::App& app));
};

/// The body of a main() with these subcommands and all Commands, by name: parses, runs the requested one, and
/// reports errors in one line. Returns the exit code (trainer/run_main.h).
int run_tool(int argc, char** argv, const AddCommands& add);

}  // namespace tool

/// The main() of the tool `athanor`: predict, evaluate, quantize, report, picture and those added by `more`.
/// Programs with their own networks can offer the same commands:
///
///     int main(int argc, char** argv) {
///       nn::register_model("my_net", make_my_net);
///       return tool_main(argc, argv);
///     }
int tool_main(int argc, char** argv, const tool::AddCommands& more = {});

}  // namespace athanor
