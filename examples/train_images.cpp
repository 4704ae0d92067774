// Trains a ResNet-18 (or --model NAME) on images of any size: a folder with a subfolder per class, split for
// validation; or the data of --train and --val: a folder, a packed file, a tar, ...; or
// --data-dir/imagenet/train and val.
//
//     build/cpu/bin/train_images photos
//
//     build/cpu/bin/train_images --train photos/train --val photos.athp --model resnet50 --pretrained FILE

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <utility>

#include <fmt/format.h>

#include "common/train.h"
#include "data/decoded_dataset.h"
#include "data/formats/open.h"
#include "data/stratified_split.h"
#include "tensor/error.h"

namespace {

using namespace athanor;

void check_classes(const Dataset& train, const Dataset& val) {
  const auto ours = train.class_names(), theirs = val.class_names();
  for (std::size_t i = 0; i < std::min(ours.size(), theirs.size()); ++i) {
    ATH_CHECK(ours[i] == theirs[i],
              "train_images: both sets must have the same classes, but class {} is '{}' in training and "
              "'{}' in validation",
              i, ours[i], theirs[i]);
  }
}

using Store = std::shared_ptr<const Dataset>;

Store open_at(const std::filesystem::path& path, Split split) {
  const auto say = [](const std::string& line) { std::fprintf(stderr, "%s\n", line.c_str()); };
  return open_samples(path, {.split = split, .on_import = say});
}

Store open(const TrainerConfig& flags, Split split) {
  const char* const name = split == Split::train ? "train" : "val";
  const std::filesystem::path& given = split == Split::train ? flags.train_data : flags.val_data;
  const std::filesystem::path path = given.empty() ? flags.data_dir / "imagenet" / name : given;
  if (!std::filesystem::exists(path)) {
    detail::fail<IoError>("data: {} must be a file or folder, but there is none; {}name it with --{}{}",
                          path.string(),
                          given.empty() && split == Split::train ? "name one folder of photos, or " : "",
                          name, given.empty() ? ", or the folder that holds imagenet/ with --data-dir" : "");
  }
  return open_at(path, split);
}

/// The training and the validation data.
std::pair<Store, Store> open_both(const TrainerConfig& flags) {
  const std::filesystem::path& photos = flags.photos;
  if (photos.empty()) return {open(flags, Split::train), open(flags, Split::test)};
  if (!flags.val_data.empty()) return {open_at(photos, Split::train), open(flags, Split::test)};
  std::error_code ignored;
  if (std::filesystem::is_directory(photos / "train", ignored) &&
      std::filesystem::is_directory(photos / "val", ignored))
    return {open_at(photos / "train", Split::train), open_at(photos / "val", Split::test)};
  auto [train, val] = stratified_split(open_at(photos, Split::train), flags.val_split, flags.seed);
  return {std::move(train), std::move(val)};
}

examples::Data images(const TrainerConfig& flags) {
  const auto [train, val] = open_both(flags);
  check_classes(*train, *val);
  const std::int64_t side = flags.image_size;
  // The central 224 of 256 pixels, or the same fraction of another size.
  const ImageTransform middle{.height = side, .width = side, .shorter_side = (side * 8 + 3) / 7};
  ImageTransform drawn = middle;
  if (flags.augment.resized_crop)
    drawn = {.height = side, .width = side, .random_crop = flags.augment.resized_crop};
  examples::Data data{std::make_unique<DecodedDataset>(train, drawn, middle, flags.seed),
                      std::make_unique<DecodedDataset>(val, middle)};
  if (!flags.test_data.empty()) {
    const Store last = open_at(flags.test_data, Split::test);
    check_classes(*train, *last);
    data.last = std::make_unique<DecodedDataset>(last, middle);
  }
  return data;
}

/// Few images need small batches: a fortieth of the set, with the learning rate in proportion.
void fit_to_size(TrainerConfig& config, std::int64_t images) {
  if (!examples::is_default(config, "--batch-size")) return;
  const std::int64_t usual = config.batch_size;
  while (config.batch_size > 8 && config.batch_size * 40 > images) config.batch_size /= 2;
  examples::set_default(config, "--batch-size", fmt::format("{}", config.batch_size));
  if (!examples::is_default(config, "--lr") || config.lr_scaling != LrScaling::none) return;
  config.lr *= static_cast<double>(config.batch_size) / static_cast<double>(usual);
  examples::set_default(config, "--lr", fmt::format("{}", config.lr));
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
  return examples::train(argc, argv, config, images, fit_to_size);
}
