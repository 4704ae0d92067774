// Trains a ResNet-18 (or --model NAME) on images of any size: one folder per class, below
// --data-dir/imagenet/train and val, or whatever --train and --val name: a folder, a packed file, a tar, ...
// build/cpu/bin/train_imagenet --train photos/train --val photos.athp --model resnet50 --pretrained FILE

#include <cstdio>

#include "common/train.h"
#include "data/decoded_dataset.h"
#include "data/formats/open.h"
#include "tensor/error.h"

namespace {

using namespace athanor;

void check_classes(const Dataset& train, const Dataset& val) {
  const auto ours = train.class_names(), theirs = val.class_names();
  for (std::size_t i = 0; i < std::min(ours.size(), theirs.size()); ++i) {
    ATH_CHECK(ours[i] == theirs[i],
              "train_imagenet: both sets must have the same classes, but class {} is '{}' in training and "
              "'{}' in validation",
              i, ours[i], theirs[i]);
  }
}

std::shared_ptr<const Dataset> open(const TrainerConfig& flags, Split split) {
  const char* const name = split == Split::train ? "train" : "val";
  const std::filesystem::path& given = split == Split::train ? flags.train_data : flags.val_data;
  const std::filesystem::path path = given.empty() ? flags.data_dir / "imagenet" / name : given;
  if (!std::filesystem::exists(path)) {
    detail::fail<IoError>("data: {} must be a file or folder, but there is none; name it with --{}{}",
                          path.string(), name,
                          given.empty() ? ", or the folder that holds imagenet/ with --data-dir" : "");
  }
  const auto say = [](const std::string& line) { std::fprintf(stderr, "%s\n", line.c_str()); };
  return open_samples(path, {.split = split, .on_import = say});
}

examples::Data images(const TrainerConfig& flags) {
  const auto train = open(flags, Split::train), val = open(flags, Split::test);
  check_classes(*train, *val);
  const std::int64_t side = flags.image_size;
  const ImageTransform drawn{.height = side, .width = side, .random_crop = RandomResizedCrop{}};
  // The middle 224 of 256 pixels, or as much of another size.
  const ImageTransform middle{.height = side, .width = side, .shorter_side = (side * 8 + 3) / 7};
  return {std::make_unique<DecodedDataset>(train, drawn, middle, flags.seed),
          std::make_unique<DecodedDataset>(val, middle)};
}

}  // namespace

int main(int argc, char** argv) {
  TrainerConfig config;
  config.program = "train_imagenet";
  config.model = "resnet18";
  config.image_size = 224;
  config.epochs = 18;
  config.batch_size = 256;
  config.lr = 0.5;
  config.weight_decay = 1e-4;
  config.label_smoothing = 0.1;
  config.augment = {.flip = true};
  // Of ImageNet's training set, as everybody has them.
  config.pixel_mean = {0.485, 0.456, 0.406};
  config.pixel_stddev = {0.229, 0.224, 0.225};
  return examples::train(argc, argv, config, images);
}
