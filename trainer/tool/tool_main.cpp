#include "trainer/tool/tool_main.h"

#include "trainer/tool/commands.h"
#include "trainer/tool/named_data.h"

namespace athanor {

int tool_main(int argc, char** argv, const tool::AddCommands& more) {
  return tool::run_tool(argc, argv, [&](CLI::App& app) {
    tool::add_predict(app);
    tool::add_evaluate(app);
    tool::add_quantize(app);
    tool::add_report(app);
    tool::add_picture(app, [](const std::string& data) { return tool::open_named(data); });
    if (more) more(app);
  });
}

}  // namespace athanor
