#include <CLI/CLI.hpp>

#include "tensor/base/error.h"
#include "trainer/tool/tool_main.h"

namespace athanor::tool {
namespace {

void add_serve(CLI::App& app) {
  CLI::App* command = app.add_subcommand("serve", "serve a trained classifier over HTTP (not in this build)");
  command->allow_extras();
  command->callback([] {
    detail::fail<>(
        "serve: this athanor was built without libmicrohttpd: install libmicrohttpd-dev, then cmake --preset "
        "cpu && cmake --build --preset cpu --target athanor-tool");
  });
}

const Command serve_command("serve", add_serve);

}  // namespace
}  // namespace athanor::tool
