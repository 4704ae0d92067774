// The tool `athanor`: one subcommand per thing to do, most of them with a file. Each registers itself.

#include <string_view>

#include "examples/athanor_tool/convert.h"
#include "examples/athanor_tool/data_commands.h"
#include "examples/athanor_tool/plan.h"
#include "examples/athanor_tool/run_op.h"
#include "examples/athanor_tool/serve.h"
#include "trainer/run_main.h"
#include "trainer/tool/tool_main.h"

namespace athanor {
namespace {

int run_whole_tool(int argc, char** argv) {
  return tool_main(argc, argv, [](CLI::App& app) {
    tool::add_run_op(app);
    tool::add_pack(app);
    tool::add_inspect(app);
    tool::add_verify(app);
    tool::add_flight(app);
    tool::add_plan(app);
    tool::add_convert(app);
    tool::add_serve(app);
  });
}

}  // namespace
}  // namespace athanor

int main(int argc, char** argv) {
  using namespace athanor;
  // A server's idle threads sleep, instead of spinning beside those that decode.
  if (argc > 1 && std::string_view(argv[1]) == "serve") return run_main(argc, argv, run_whole_tool);
  return run_whole_tool(argc, argv);
}
