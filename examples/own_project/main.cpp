// A custom model on custom images: own_project FOLDER [flags]. FOLDER has one folder per class, 0/ 1/ ...,
// with 8x8 grey pictures in the text form of PGM. --help lists all features of a Trainer.
#include <algorithm>
#include <filesystem>
#include <fstream>

#include <athanor.h>

using namespace athanor;

/// A data set defines its size, its shape, and how to read a sample.
struct Pictures : ImageDataset {
  explicit Pictures(const std::filesystem::path& folder) {
    ATH_CHECK(std::filesystem::is_directory(folder), "own_project: {} must be a folder, but is not",
              folder.string());
    for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
      if (entry.path().extension() == ".pgm") files.push_back(entry.path());
    }
    std::sort(files.begin(), files.end());
    ATH_CHECK(!files.empty(), "own_project: {} must hold .pgm files, but has none", folder.string());
    shape = {8, 8, 1, label(std::ssize(files) - 1) + 1};
  }
  std::int64_t label(std::int64_t i) const { return std::stoll(files.at(i).parent_path().filename()); }
  std::int64_t size() const override { return std::ssize(files); }
  const ImageSpec& spec() const override { return shape; }
  std::int64_t read(std::int64_t index, std::span<std::uint8_t> pixels) const override {
    std::ifstream in(files.at(index));
    std::string magic;
    int width, height, brightest, value;
    in >> magic >> width >> height >> brightest;
    for (auto& pixel : pixels) pixel = static_cast<std::uint8_t>(in >> value ? value : 0);
    if (!in) throw IoError(files.at(index).string() + ": must hold 8x8 numbers after its header");
    return label(index);
  }
  ImageSpec shape;
  std::vector<std::filesystem::path> files;
};

/// A model defines its layers, their names, and their order.
struct Net : nn::Module {
  nn::Conv2d conv{1, 8, 3, {.padding = 1, .activation = Activation::relu}};
  nn::Linear head;
  explicit Net(std::int64_t classes) : head(8, classes) {
    register_module("conv", conv);
    register_module("head", head);
  }
  Tensor forward(const Tensor& x) override { return head(flatten(adaptive_avg_pool2d(conv(x), 1, 1))); }
};

int main(int argc, char** argv) {
  return run_main(argc, argv, [](int count, char** arguments) {
    const int folders = count > 1 && arguments[1][0] != '-' ? 1 : 0;
    TrainerConfig config =
        parse_flags(count - folders, arguments + folders, {.program = "own_project", .epochs = 10});
    ATH_CHECK(folders == 1,
              "own_project: the first argument must be a folder of pictures, but there is none");
    // In one process, or in several that share the work: --devices.
    return run_on_ranks(config, arguments, dist::networks(), [&](dist::Transport* transport) {
      const auto [train, test] = split(std::make_shared<Pictures>(arguments[1]), 0.2);
      Net net(train->spec().classes);
      net.initialize(config.seed);
      Trainer trainer(config, transport);
      if (trainer.rank() == 0) trainer.add(std::make_unique<Progress>());
      return exit_code(trainer.fit(net, *train, *test));
    });
  });
}
