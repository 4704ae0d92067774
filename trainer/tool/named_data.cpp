#include "trainer/tool/named_data.h"

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "data/decoded_dataset.h"
#include "data/digits.h"
#include "data/formats/cifar.h"
#include "data/formats/mnist.h"
#include "data/formats/open.h"
#include "data/formats/shards.h"
#include "data/in_memory.h"
#include "data/stratified_split.h"
#include "tensor/base/error.h"
#include "tensor/base/printable.h"
#include "trainer/checkpoints/split_file.h"
#include "trainer/detail/terminal.h"

namespace athanor::tool {
namespace {

namespace fs = std::filesystem;

void say(const std::string& line) {
  terminal::say(stderr, printable(line));
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
    say(fmt::format("not measured, because new or changed in {}: {} ({}{})", photos, found.added.size(),
                    all->where(found.added.front()), found.added.size() > 1 ? ", ..." : ""));
  auto held_out = std::make_unique<Subset>(std::move(all), found.held_out);
  return {fmt::format("the {} of {} that its run validated on", held_out->size(), photos),
          std::move(held_out)};
}

/// config.json of a run.
class RecordedFlags {
 public:
  explicit RecordedFlags(const fs::path& file) {
    std::ifstream in(file);
    json_ = nlohmann::json::parse(in, nullptr, false);
  }
  std::string program() const { return text("/program"); }
  std::string value(const char* flag) const { return text(fmt::format("/flags/{}/value", flag)); }
  /// The value of a path, whose default is a description: empty unless it was given.
  std::string given(const char* flag) const {
    return text(fmt::format("/flags/{}/from", flag)) == "default" ? "" : value(flag);
  }
  std::string path(const char* flag) const {
    const std::string typed = given(flag);
    const fs::path here = in_its_folder(typed);
    if (here.is_relative() && exists(here))
      say(fmt::format("{} is not where the run began: taken from the current folder", typed));
    return here.string();
  }
  /// A path as it was typed, seen from the folder where the run began.
  std::string in_its_folder(const std::string& typed) const {
    const fs::path there = shards_below(text("/working_directory"), typed);
    return !typed.empty() && exists(there) ? there.string() : typed;
  }

 private:
  /// Also if it names several, whose shards will then be looked for.
  static bool exists(const fs::path& at) {
    std::error_code ignored;
    if (!names_several(at)) return fs::exists(at, ignored);
    try {
      (void)shards_of(at);
      return true;
    } catch (const IoError&) {
      return false;
    }
  }
  std::string text(const std::string& where) const {
    const nlohmann::json::json_pointer at(where);
    return json_.contains(at) && json_[at].is_string() ? json_[at].get<std::string>() : std::string();
  }

  nlohmann::json json_;
};

}  // namespace

std::unique_ptr<Dataset> open_named(const std::string& data, const std::string& data_dir, OpenOptions how,
                                    Split split) {
  const char* const set = std::getenv("ATHANOR_DATA_DIR");
  const fs::path folder = !data_dir.empty() ? data_dir : set && *set ? set : "data-cache";
  if (data == "digits") return digits(split);
  if (data == "mnist") return mnist(folder / "mnist", split);
  if (data == "cifar10") return cifar10(folder / "cifar10", split);
  how.split = split;
  how.on_import = say;
  std::unique_ptr<Dataset> opened = open_samples(data, how);
  say_unused(*opened);
  return opened;
}

OpenOptions labels_for(const ModelFile& model, const std::string& fields, const BadSamples& bad) {
  const ModelInfo& info = model.info;
  OpenOptions labels{.fields = fields, .labels = info.task, .keep_damaged = bad.keeps_going()};
  if (info.task == LabelKind::classes) return labels;
  labels.label_names = info.class_names;
  if (labels.fields.empty()) labels.fields = fields_of_run(run_of(model));
  return labels;
}

std::shared_ptr<const Dataset> as_validated(std::shared_ptr<const Dataset> stored, const ModelInfo& model) {
  const ImageTransform transform = resizing(model);
  const bool covers =
      transform.mode == ResizeMode::crop && transform.shorter_side == 0 && transform.crop_share == 1;
  if (stored->spec().height > 0 && covers) return stored;
  return std::make_shared<DecodedDataset>(std::move(stored), transform);
}

fs::path run_of(const ModelFile& model) {
  return model.info.float_model.empty() ? model.path : fs::path(model.info.float_model);
}

std::string fields_of_run(const fs::path& model) {
  return RecordedFlags(model.parent_path() / "config.json").given("--fields");
}

ValidatedData open_validated(const fs::path& model, const std::string& data_dir, OpenOptions how) {
  const fs::path config = model.parent_path() / "config.json";
  const RecordedFlags flags(config);
  if (how.fields.empty()) how.fields = flags.given("--fields");
  const std::string program = flags.program(), photos = flags.path("PHOTOS");
  std::string val = flags.path("--val"), from = data_dir;
  std::error_code ignored;
  if (from.empty()) from = flags.in_its_folder(flags.value("--data-dir"));
  if (data_dir.empty() && !fs::exists(from, ignored)) from = flags.given("--data-dir");
  if (program == "train_digits" || program == "train_mnist" || program == "train_cifar10") {
    const std::string name = program.substr(std::string("train_").size());
    return {name, open_named(name, from)};
  }
  const fs::path usual = fs::path(from) / "imagenet/val";
  if (photos.empty() && val.empty() && fs::exists(usual, ignored)) val = usual.string();
  ATH_CHECK(program == "train_images" && !(photos.empty() && val.empty()),
            "--val: must name images, because {} does not record what the run validated on", config.string());
  if (!val.empty()) return {val, open_named(val, {}, how)};
  if (const auto sets = sets_in(photos); sets && how.labels == LabelKind::classes)
    return {sets->held_out.string(),
            open_named(sets->held_out.string(), {}, {.keep_damaged = how.keep_damaged})};
  how.split = Split::train;
  std::shared_ptr<const Dataset> all = open_samples(photos, how);
  say_unused(*all);
  if (const auto found = find_split(model.parent_path(), *all))
    return as_found(*found, photos, std::move(all));
  double share = 0;  // a run of an older version
  std::uint64_t seed = 0;
  std::istringstream(flags.value("--val-split")) >> share;
  std::istringstream(flags.value("--seed")) >> seed;
  auto [train, held_out] = stratified_split(std::move(all), share, seed);
  return {fmt::format("the {} of {} that its run validated on", held_out->size(), photos),
          std::move(held_out)};
}

}  // namespace athanor::tool
