// Trains a ResNet-18 (or --model NAME) on images of any size: a folder with a subfolder per class, split for
// validation; or the data of --train and --val: a folder, a packed file, a tar, ...; or
// --data-dir/imagenet/train and val.
//
//     build/cpu/bin/train_images photos
//
//     build/cpu/bin/train_images --train photos/train --val photos.athp --model resnet50 --pretrained FILE
//     build/cpu/bin/train_images --train 'shards/train-{000..147}.tar' --val 'shards/val-*.tar' --order pages

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "common/train.h"
#include "data/check_labels.h"
#include "data/decoded_dataset.h"
#include "data/formats/open.h"
#include "data/formats/shards.h"
#include "data/relabelled.h"
#include "data/sample_weights.h"
#include "data/stratified_split.h"
#include "tensor/base/error.h"
#include "trainer/detail/terminal.h"
#include "trainer/flags/detail/read_flag.h"

namespace {

using namespace athanor;

using Store = std::shared_ptr<const Dataset>;

/// A set with the numbers of the training set's classes, which are matched by name.
Store with_classes_of(const Dataset& train, Store other, const char* flag) {
  try {
    return with_classes(std::move(other), train.class_names());
  } catch (const ArgumentError& error) {
    detail::fail<>("{}: images must have the classes of the training images: {}", flag, error.what());
  }
}

/// `like`: the training set, whose labels another has, too; null: it is that.
Store open_at(const std::filesystem::path& path, Split split, const TrainerConfig& flags,
              const Dataset* like = nullptr) {
  const auto say = [](const std::string& line) { terminal::say(stderr, line); };
  Store opened = open_samples(path, {.split = split,
                                     .fields = flags.fields,
                                     .labels = flags.task,
                                     .label_names = like ? like->class_names() : std::vector<std::string>(),
                                     .keep_damaged = flags.bad_samples.keeps_going(),
                                     .on_import = say});
  if (flags.task == LabelKind::classes) check_labels(*opened, flags.task, path.c_str());
  return opened;
}

Store open(const TrainerConfig& flags, Split split, const Dataset* like = nullptr) {
  const char* const name = split == Split::train ? "train" : "val";
  const std::filesystem::path& given = split == Split::train ? flags.train_data : flags.val_data;
  const std::filesystem::path path = given.empty() ? flags.data_dir / "imagenet" / name : given;
  if (!std::filesystem::exists(path) && !names_several(path)) {
    detail::fail<IoError>("data: {} must be a file or folder, but there is none; {}name it with --{}{}",
                          path.string(),
                          given.empty() && split == Split::train ? "name one folder of photos, or " : "",
                          name, given.empty() ? ", or the folder that holds imagenet/ with --data-dir" : "");
  }
  return open_at(path, split, flags, like);
}

struct Both {
  Store train, val;
  bool is_split = false;  ///< drawn from one set
  std::vector<Unused> unused = {};
};

/// The names of classes that only the training set has.
std::vector<std::string> without_validation(const Dataset& train, const Dataset& val) {
  std::vector<bool> validated(static_cast<std::size_t>(std::max(train.spec().classes, val.spec().classes)));
  for (std::int64_t i = 0; i < val.size(); ++i) validated[static_cast<std::size_t>(val.label(i))] = true;
  const std::vector<std::string> names = train.class_names();
  std::vector<std::string> missing;
  for (std::int64_t i = 0; i < train.size(); ++i) {
    const auto label = static_cast<std::size_t>(train.label(i));
    if (validated[label]) continue;
    missing.push_back(names.empty() ? fmt::to_string(label) : names[label]);
    validated[label] = true;
  }
  return missing;
}

/// Counts class names that only one set has, and classes of the training set that are not validated.
void count_classes(const Dataset& train, const Dataset& val, bool is_split, std::vector<Unused>& unused) {
  const std::vector<std::string> names = train.class_names(), others = val.class_names();
  if (names.empty() != others.empty()) {
    const std::string cause = fmt::format("class names that are not matched, because --{} has none",
                                          names.empty() ? "train" : "val");
    for (const std::string& name : names.empty() ? others : names) count_unused(unused, cause, name);
  } else if (is_split || !names.empty()) {  // else the labels may be in the files alone
    const char* const cause =
        is_split ? "classes with one image, which are not validated" : "classes without validation images";
    for (const std::string& name : without_validation(train, val)) count_unused(unused, cause, name);
  }
}

/// Counts labels that no image has: often they begin at 1. Names of folders cannot.
void count_empty_classes(const Dataset& train, std::vector<Unused>& unused) {
  if (!train.class_names().empty()) return;
  std::vector<bool> used(static_cast<std::size_t>(train.spec().classes));
  for (std::int64_t i = 0; i < train.size(); ++i) {
    try {
      used[static_cast<std::size_t>(train.label(i))] = true;
    } catch (const IoError&) {  // --bad-samples is about these
    }
  }
  const auto first = std::find(used.begin(), used.end(), true) - used.begin();
  const std::string shifted =
      fmt::format("classes without images, because labels begin at {0}; subtract {0} from each", first);
  for (std::ptrdiff_t label = 0; label < std::ssize(used); ++label) {
    if (used[static_cast<std::size_t>(label)]) continue;
    count_unused(unused, label < first ? shifted : "classes without images", fmt::to_string(label));
  }
}

/// Counts the column "weight" unless a flag uses it: it may be meant as a label.
void count_weight(const TrainerConfig& flags, const Dataset& train, std::vector<Unused>& unused) {
  const std::vector<FieldSpec> fields = train.fields();
  if (flags.sampler == Sampler::weights || flags.sample_weights ||
      std::ranges::find(fields, kWeightField, &FieldSpec::name) == fields.end())
    return;
  count_unused(unused,
               "column that neither --sampler weights nor --sample-weights uses, nor --fields as a label",
               kWeightField);
}

Both open_both(const TrainerConfig& flags) {
  const std::filesystem::path& photos = flags.photos;
  if (photos.empty() || !flags.val_data.empty()) {
    const Store train = photos.empty() ? open(flags, Split::train) : open_at(photos, Split::train, flags);
    return {train, open(flags, Split::test, train.get())};
  }
  if (const auto sets = sets_in(photos); sets && flags.task == LabelKind::classes) {
    Both both{open_at(sets->train, Split::train, flags), open_at(sets->held_out, Split::test, flags)};
    both.unused = beside_sets(photos, {sets->train, sets->held_out, flags.test_data});
    return both;
  }
  auto [train, val] = stratified_split(open_at(photos, Split::train, flags), flags.val_split, flags.seed);
  return {std::move(train), std::move(val), true};
}

/// The central 224 of 256 pixels, or the same share of another size; or the whole image, by --resize.
ImageTransform evaluation(const TrainerConfig& flags, const ImageSize& size) {
  const bool crops = flags.resize == ResizeMode::crop;
  ATH_CHECK(crops || !flags.augment.resized_crop || examples::is_default(flags, "--augment"),
            "--augment: resized-crop cuts parts out of images that --resize {} keeps whole; leave it out",
            name_of(flags.resize));
  for (const auto& [flag, mode] :
       {std::pair("--crop-share", ResizeMode::crop), {"--pad-value", ResizeMode::pad}})
    ATH_CHECK(flags.resize == mode || !examples::is_typed(flags, flag),
              "{}: belongs to --resize {}, but got --resize {}; leave it out", flag, name_of(mode),
              name_of(flags.resize));
  ImageTransform transform = central_crop(size, crops ? flags.crop_share : 1);
  if (!crops) transform.shorter_side = 0;
  transform.mode = flags.resize;
  transform.interpolation = flags.interpolation;
  transform.padding = flags.padding;
  return transform;
}

examples::Data images(const TrainerConfig& flags) {
  const auto [train, held_out, is_split, unused] = open_both(flags);
  const Store val = with_classes_of(*train, held_out, "--val");
  const ImageTransform validated = evaluation(flags, flags.validated_image_size());
  const ImageTransform middle = evaluation(flags, flags.size_of_images());
  ImageTransform drawn = middle;
  if (flags.resize == ResizeMode::crop) drawn.random_crop = flags.augment.resized_crop;
  examples::Data data{std::make_unique<DecodedDataset>(train, drawn, middle, flags.seed),
                      std::make_unique<DecodedDataset>(val, validated)};
  data.is_split = is_split;
  data.unused = unused;
  if (flags.task == LabelKind::classes) {
    count_classes(*train, *val, is_split, data.unused);
    count_empty_classes(*train, data.unused);
  }
  count_weight(flags, *train, data.unused);
  if (!flags.test_data.empty()) {
    const Store last =
        with_classes_of(*train, open_at(flags.test_data, Split::test, flags, train.get()), "--test");
    data.last = std::make_unique<DecodedDataset>(last, validated);
    add_unused(data.unused, last->unused());
  }
  return data;
}

/// Images of other than three channels get their own mean and deviation, measured. Images that are kept whole
/// are not cropped at random. Few images need small batches: a fortieth of the set, and a rate that fits
/// them.
void fit_to_data(TrainerConfig& config, const Dataset& train) {
  const std::int64_t usual = config.batch_size, images = train.size();
  for (const auto& [flag, numbers] :
       {std::pair("--mean", &config.pixel_mean), {"--std", &config.pixel_stddev}}) {
    if (train.spec().channels != std::ssize(*numbers) && examples::is_default(config, flag)) numbers->clear();
  }
  if (config.resize != ResizeMode::crop && config.augment.resized_crop) {
    config.augment.resized_crop.reset();
    examples::record_default(config, "--augment", text(config.augment));
  }
  if (!examples::is_default(config, "--batch-size")) return;
  while (config.batch_size > 8 && config.batch_size * 40 > images) config.batch_size /= 2;
  examples::record_default(config, "--batch-size", fmt::format("{}", config.batch_size));
  if (!examples::is_default(config, "--lr") || config.lr_scaling != LrScaling::none) return;
  fit_usual_rate(config, usual);
  examples::record_default(config, "--lr", fmt::format("{}", config.lr));
}

}  // namespace

int main(int argc, char** argv) {
  TrainerConfig config;
  config.program = "train_images";
  config.model = "resnet18";
  config.image_size = 224;
  config.epochs = 18;
  config.batch_size = 256;
  config.lr = 0.5;
  config.weight_decay = 1e-4;
  config.label_smoothing = 0.1;
  config.augment = {.flip = true, .resized_crop = RandomResizedCrop{}, .crops_when_decoded = true};
  // The usual values of ImageNet's training set.
  config.pixel_mean = {0.485, 0.456, 0.406};
  config.pixel_stddev = {0.229, 0.224, 0.225};
  return examples::train(argc, argv, config, images, fit_to_data);
}
