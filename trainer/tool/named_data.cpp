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
#include "data/in_memory.h"
#include "data/stratified_split.h"
#include "tensor/error.h"
#include "tensor/printable.h"
#include "trainer/checkpoints/split_file.h"

namespace athanor::tool {
namespace {

void say(const std::string& line) {
  std::fprintf(stderr, "%s\n", printable(line).c_str());
}

void say_unused(const Dataset& data) {
  if (const std::string unused = text_of(data.unused()); !unused.empty()) say("not used: " + unused);
}

/// The samples of `photos` that a run validated on; stderr says what has changed since.
ValidatedData as_found(const FoundSplit& found, const std::string& photos,
                       std::shared_ptr<const Dataset> all) {
  const std::int64_t were = std::ssize(found.held_out) + found.missing;
  if (found.held_out.empty())
    detail::fail<IoError>("--val: must name images, because {} has none of the {} that the run validated on",
                          photos, were);
  if (found.missing > 0)
    say(fmt::format("{} of the {} images that the run validated on are no longer in {}, or have changed",
                    found.missing, were, photos));
  if (!found.added.empty())
    say(fmt::format("{} images are new in {}, or have changed, and are not measured: {}{}",
                    found.added.size(), photos, all->where(found.added.front()),
                    found.added.size() > 1 ? ", ..." : ""));
  auto held_out = std::make_unique<Subset>(std::move(all), found.held_out);
  return {fmt::format("the {} of {} that its run validated on", held_out->size(), photos),
          std::move(held_out)};
}

}  // namespace

std::unique_ptr<Dataset> open_named(const std::string& data, const std::string& data_dir) {
  const char* const set = std::getenv("ATHANOR_DATA_DIR");
  const std::filesystem::path folder = !data_dir.empty() ? data_dir : set && *set ? set : "data-cache";
  if (data == "digits") return digits(Split::test);
  if (data == "mnist") return mnist(folder / "mnist", Split::test);
  if (data == "cifar10") return cifar10(folder / "cifar10", Split::test);
  std::unique_ptr<Dataset> opened = open_samples(data, {.split = Split::test, .on_import = say});
  say_unused(*opened);
  return opened;
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
  // Paths are as they were typed, in the folder where the run began.
  const auto in_its_folder = [&](const std::string& typed) -> std::string {
    if (typed.empty() || !json.contains("working_directory") || !json["working_directory"].is_string())
      return typed;
    const std::filesystem::path there =
        std::filesystem::path(json["working_directory"].get<std::string>()) / typed;
    std::error_code ignored;
    return std::filesystem::exists(there, ignored) ? there.string() : typed;
  };
  const auto path = [&](const char* flag) { return in_its_folder(given(flag)); };
  const std::string program = json["program"];
  std::string from = data_dir.empty() ? in_its_folder(text("--data-dir")) : data_dir;
  if (std::error_code ignored; !std::filesystem::exists(from, ignored) && data_dir.empty())
    from = given("--data-dir");
  if (program == "train_digits" || program == "train_mnist" || program == "train_cifar10") {
    const std::string name = program.substr(std::string("train_").size());
    return {name, open_named(name, from)};
  }
  const std::string photos = path("PHOTOS");
  std::string val = path("--val");
  const std::filesystem::path usual = std::filesystem::path(from) / "imagenet/val";
  if (std::error_code ignored; photos.empty() && val.empty() && std::filesystem::exists(usual, ignored))
    val = usual.string();
  if (program != "train_images" || (photos.empty() && val.empty())) does_not_tell();
  if (!val.empty()) return {val, open_named(val)};
  if (const auto own = held_out_beside_train(photos)) return {own->string(), open_named(own->string())};
  std::shared_ptr<const Dataset> all = open_samples(photos, {.split = Split::train});
  say_unused(*all);
  if (const auto found = find_split(model.parent_path(), *all))
    return as_found(*found, photos, std::move(all));
  double share = 0;  // a run of an older version
  std::uint64_t seed = 0;
  std::istringstream(text("--val-split")) >> share;
  std::istringstream(text("--seed")) >> seed;
  auto [train, held_out] = stratified_split(std::move(all), share, seed);
  return {fmt::format("the {} of {} that its run validated on", held_out->size(), photos),
          std::move(held_out)};
}

}  // namespace athanor::tool
