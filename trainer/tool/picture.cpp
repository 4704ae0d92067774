#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "data/image/png.h"
#include "tensor/base/error.h"
#include "tensor/base/printable.h"
#include "tensor/io/atomic_file.h"
#include "trainer/tool/commands.h"

namespace athanor::tool {
namespace {

struct PictureOptions {
  std::string data, file;
  std::int64_t index = 0;
};

void write_picture(const PictureOptions& options, const Dataset& data) {
  const ImageSpec& spec = data.spec();
  ATH_CHECK(spec.bytes() > 0, "picture: {} must have images of one size, but has files, which are pictures",
            options.data);
  ATH_CHECK(spec.channels == 1 || spec.channels == 3,
            "picture: images must have 1 or 3 channels, but those of {} have {}", options.data,
            spec.channels);
  ATH_CHECK(options.index >= 0 && options.index < data.size(), "picture: {} has images 0 to {}, but got {}",
            options.data, data.size() - 1, options.index);
  std::vector<std::uint8_t> pixels(static_cast<std::size_t>(spec.bytes()));
  const std::int64_t label = data.read(options.index, pixels);
  std::vector<std::byte> png;
  encode_png({pixels.data(), spec.height, spec.width, spec.channels, spec.width * spec.channels}, png);
  write_atomically(options.file, png);
  const std::vector<std::string> names = data.class_names();
  fmt::print("{}: image {} of {}, which shows {}\n", printable(options.file), options.index,
             printable(options.data),
             names.empty() ? fmt::to_string(label) : printable(names.at(static_cast<std::size_t>(label))));
}

}  // namespace

void add_picture(CLI::App& app, const OpenData& open) {
  CLI::App* command = app.add_subcommand("picture", "write an image of a data set as a PNG");
  const auto options = std::make_shared<PictureOptions>();
  command->add_option("DATA", options->data, "digits (its test images), or whatever --val of evaluate takes")
      ->required();
  command->add_option("INDEX", options->index, "which of its images; 0 is the first")->required();
  command->add_option("FILE", options->file, "the PNG to write")->required();
  command->callback([options, open] { write_picture(*options, *open(options->data)); });
}

}  // namespace athanor::tool
