// The tool `athanor`: one subcommand per task, most of them on a file. Each registers itself.

#include "examples/athanor_tool/convert.h"
#include "examples/athanor_tool/data_commands.h"
#include "examples/athanor_tool/plan.h"
#include "examples/athanor_tool/run_op.h"
#include "examples/athanor_tool/serve.h"
#include "trainer/run_main.h"
#include "trainer/tool/tool_main.h"

int main(int argc, char** argv) {
  using namespace athanor;
  use_passive_openmp_waits(argv);  // instead of spinning next to loader threads
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
