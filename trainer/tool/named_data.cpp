#include "trainer/tool/named_data.h"

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "data/digits.h"
#include "data/formats/cifar.h"
#include "data/formats/mnist.h"
#include "data/formats/open.h"
#include "data/stratified_split.h"
#include "tensor/error.h"
#include "tensor/printable.h"

namespace athanor::tool {

std::unique_ptr<Dataset> open_named(const std::string& data, const std::string& data_dir) {
  const char* const set = std::getenv("ATHANOR_DATA_DIR");
  const std::filesystem::path folder = !data_dir.empty() ? data_dir : set && *set ? set : "data-cache";
  if (data == "digits") return digits(Split::test);
  if (data == "mnist") return mnist(folder / "mnist", Split::test);
  if (data == "cifar10") return cifar10(folder / "cifar10", Split::test);
  const auto say = [](const std::string& line) { std::fprintf(stderr, "%s\n", printable(line).c_str()); };
  return open_samples(data, {.split = Split::test, .on_import = say});
}

ValidatedData open_validated(const std::filesystem::path& model, const std::string& data_dir) {
  const std::filesystem::path config = model.parent_path() / "config.json";
  const auto does_not_tell = [&] {
    detail::fail<>("--val: must name images, because {} does not record what the run validated on",
                   config.string());
  };
  std::ifstream in(config);
  const auto json = nlohmann::json::parse(in, nullptr, false);
  const auto entry = [&](const char* flag, const char* name) {
    const nlohmann::json::json_pointer at(fmt::format("/flags/{}/{}", flag, name));
    return json.contains(at) && json[at].is_string() ? json[at].get<std::string>() : std::string();
  };
  const auto text = [&](const char* flag) { return entry(flag, "value"); };
  // The default of a path is a description, not a path.
  const auto given = [&](const char* flag) { return entry(flag, "from") == "default" ? "" : text(flag); };
  if (!json.is_object() || !json.contains("program") || !json["program"].is_string()) does_not_tell();
  const std::string program = json["program"], from = data_dir.empty() ? given("--data-dir") : data_dir;
  if (program == "train_digits" || program == "train_mnist" || program == "train_cifar10") {
    const std::string name = program.substr(std::string("train_").size());
    return {name, open_named(name, from)};
  }
  const std::string photos = given("PHOTOS"), val = given("--val");
  if (program != "train_images" || (photos.empty() && val.empty())) does_not_tell();
  if (!val.empty()) return {val, open_named(val)};
  std::error_code ignored;
  const std::filesystem::path own = std::filesystem::path(photos) / "val";
  if (std::filesystem::is_directory(own, ignored) &&
      std::filesystem::is_directory(std::filesystem::path(photos) / "train", ignored))
    return {own.string(), open_named(own.string())};
  double share = 0;
  std::uint64_t seed = 0;
  std::istringstream(text("--val-split")) >> share;
  std::istringstream(text("--seed")) >> seed;
  auto [train, held_out] = stratified_split(open_samples(photos, {.split = Split::train}), share, seed);
  return {fmt::format("the {} of {} that its run validated on", held_out->size(), photos),
          std::move(held_out)};
}

}  // namespace athanor::tool
