// A program outside the tree with a network of its own: it trains it, and has the commands of `athanor` for
// it.
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "athanor.h"

using namespace athanor;

namespace {

struct Tiny : nn::Module {
  nn::Linear out;
  explicit Tiny(const nn::ModelOptions& options)
      : out(options.in_channels * options.image_size * options.image_size, options.classes) {
    register_module("out", out);
  }
  Tensor forward(const Tensor& x) override { return out(flatten(x)); }
};

int command(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "own_tool");
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  return tool_main(static_cast<int>(arguments.size()), argv.data());
}

int check(const char* what, int code, int expected) {
  if (code != expected) std::printf("%s: must end with %d, but ends with %d\n", what, expected, code);
  return code != expected;
}

}  // namespace

int main() {
  nn::register_model("tiny", [](const nn::ModelOptions& options) { return std::make_unique<Tiny>(options); });
  std::filesystem::remove_all("run");
  TrainerConfig config{.program = "own_tool", .model = "tiny", .epochs = 2};
  config.run_dir = "run";
  const auto network = nn::make_model("tiny", {10, 1, 8}, 1);
  Trainer(config).fit(*network, *digits(Split::train), *digits(Split::test));

  int wrong = check("evaluate", command({"evaluate", "run", "--val", "digits"}), 0);
  wrong += check("picture", command({"picture", "digits", "7", "seven.png"}), 0);
  wrong += check("predict", command({"predict", "run", "seven.png"}), 0);
  wrong += check("predict of nothing", command({"predict", "run", "nothing.png"}), 2);
  wrong += check("a command that there is not", command({"predikt"}), 2);
  return wrong > 0;
}
