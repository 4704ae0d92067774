// The tool `athanor`: one subcommand per task, most of them on a file. Each source adds its own
// (tool::Command).

#include "examples/athanor_tool/run_op.h"
#include "trainer/run_main.h"
#include "trainer/tool/tool_main.h"

int main(int argc, char** argv) {
  using namespace athanor;
  use_passive_openmp_waits(argv);                  // instead of spinning next to loader threads
  return tool_main(argc, argv, tool::add_run_op);  // of a library: nothing else would link it
}
