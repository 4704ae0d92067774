// The tool `athanor` without commands for data files: quick to build for scripts/quickstart.sh.

#include "data/digits.h"
#include "tensor/error.h"
#include "trainer/tool/commands.h"
#include "trainer/tool/tool_main.h"

int main(int argc, char** argv) {
  using namespace athanor;
  return tool::run_tool(argc, argv, [](CLI::App& app) {
    tool::add_predict(app);
    tool::add_picture(app, [](const std::string& data) {
      ATH_CHECK(data == "digits",
                "picture: this athanor was built by scripts/quickstart.sh, and knows digits only, but got "
                "{}; build all of it with cmake --build --preset cpu --target athanor-tool",
                data);
      return digits(Split::test);
    });
  });
}
