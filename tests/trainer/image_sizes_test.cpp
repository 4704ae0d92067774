// --image-size 8:0,16:1 and --val-image-size: images of several sizes in one run.
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "autograd/shape.h"
#include "data/decoded_dataset.h"
#include "data/synthetic.h"
#include "dist/transports/thread_transport.h"
#include "nn/conv2d.h"
#include "nn/linear.h"
#include "nn/pool.h"
#include "tests/support/errors.h"
#include "tests/support/resumed_run.h"
#include "tests/support/temp_dir.h"
#include "trainer/inference/model_file.h"

namespace athanor::image_sizes_test {

using test::RecordedRun;

/// A network for images of any size, which notes their sides.
class AnySize final : public nn::Module {
 public:
  AnySize() {
    register_module("conv", conv);
    register_module("out", out);
    initialize(1);
  }
  Tensor forward(const Tensor& x) override {
    (training() ? trained : validated).push_back(x.dim(1));
    return out(flatten(pool(conv(x))));
  }
  nn::Conv2d conv{3, 6, 3, {.padding = 1, .activation = Activation::relu}};
  nn::AdaptiveAvgPool2d pool;
  nn::Linear out{6, 5};
  std::vector<std::int64_t> trained, validated;
};

DecodedDataset images(std::int64_t side, std::int64_t count, std::uint64_t seed, bool crops) {
  ImageTransform evaluation{.height = side, .width = side, .shorter_side = side + side / 4},
      training = evaluation;
  if (crops) training.random_crop = RandomResizedCrop{};
  return {synthetic({20, 20, 3, 5}, count, seed), training, evaluation, 1};
}

/// Four steps an epoch: one epoch of 8 pixels, one of 12, one of 16.
TrainerConfig config_of_sizes() {
  TrainerConfig config;
  config.epochs = 3;
  config.batch_size = 10;
  config.lr = 0.1;
  config.threads = 1;
  config.deterministic = true;
  config.image_size = 16;
  config.image_sizes = {{{8, 8}, 0}, {{12, 12}, 1}, {{16, 16}, 2}};
  return config;
}

RecordedRun train(const TrainerConfig& config, AnySize& model, dist::Transport* transport = nullptr) {
  const DecodedDataset train = images(config.image_size, 40, 1, true),
                       val = images(config.validated_image_size().height, 20, 2, false);
  Trainer trainer(config, transport);
  return test::record(trainer, model, train, val, {}, true);
}
RecordedRun train(const TrainerConfig& config) {
  AnySize model;
  return train(config, model);
}

using Sides = std::vector<std::int64_t>;

TEST(ImageSizes, FollowTheEpoch) {
  TrainerConfig config = config_of_sizes();
  config.val_image_size = {20, 20};
  AnySize model;
  const RecordedRun run = train(config, model);
  EXPECT_TRUE(test::has_note(
      run, {"8x8 pixels", "12x12 from epoch 2", "16x16 from epoch 3", "validation images 20x20"}));
  EXPECT_EQ(model.trained, (Sides{8, 8, 8, 8, 12, 12, 12, 12, 16, 16, 16, 16}));
  EXPECT_EQ(model.validated, (Sides{20, 20, 20}));
}

// The images of an epoch are those of a data set made for its size.
TEST(ImageSizes, ADecodedSetOfAnotherSizeIsWhatItsTransformsWouldGive) {
  const DecodedDataset large = images(16, 6, 1, true), small = images(8, 6, 1, true);
  const std::shared_ptr<const Dataset> made = large.with_size(8, 8);
  ASSERT_TRUE(made);
  ASSERT_EQ(made->spec(), small.spec());
  EXPECT_EQ(made->resizing().shorter_side, 10);
  std::vector<std::uint8_t> a(static_cast<std::size_t>(small.spec().bytes())), b = a;
  for (std::int64_t i = 0; i < 6; ++i) {
    EXPECT_EQ(made->read(i, a), small.read(i, b));
    EXPECT_EQ(a, b);
    (void)made->read_in_epoch(i, 3, a);
    (void)small.read_in_epoch(i, 3, b);
    EXPECT_EQ(a, b);
  }
  EXPECT_EQ(synthetic({8, 8, 3, 5}, 4)->with_size(4, 4), nullptr);
}

TEST(ImageSizes, GiveTheSameBitsWithAnyNumberOfThreads) {
  TrainerConfig config = config_of_sizes();
  config.workers = 0;
  const RecordedRun alone = train(config);
  TrainerConfig constant = config;
  constant.image_sizes.clear();
  EXPECT_NE(train(constant).weights, alone.weights) << "this test would not see a size";
  for (const int workers : {2, 5}) {
    config.workers = workers;
    EXPECT_EQ(train(config).hashes, alone.hashes) << workers;
    config.persistent_workers = false;
    EXPECT_EQ(train(config).hashes, alone.hashes) << workers;
    config.persistent_workers = true;
  }
}

TEST(ImageSizes, AreThoseOfAllRanks) {
  std::vector<AnySize> models(3);
  std::vector<RecordedRun> runs(3);
  dist::run_ranks(3, [&](dist::Transport& transport) {
    const auto rank = static_cast<std::size_t>(transport.rank());
    runs[rank] = train(config_of_sizes(), models[rank], &transport);
  });
  for (std::size_t rank = 0; rank < runs.size(); ++rank) {
    EXPECT_EQ(models[rank].trained, models[0].trained);
    EXPECT_EQ(runs[rank].report.weights_hash, runs[0].report.weights_hash);
  }
}

TEST(ImageSizes, AResumedRunHasThoseOfItsEpoch) {
  const test::TempDir folder;
  TrainerConfig config = config_of_sizes();
  const RecordedRun straight = train(config);
  TrainerConfig saving = config;
  saving.checkpoint_dir = folder.path();
  saving.checkpoint_every = 3;
  saving.checkpoint_keep = 100;
  (void)train(saving);
  int resumed = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder.path())) {
    if (entry.path().extension() != ".safetensors") continue;
    SCOPED_TRACE(entry.path());
    TrainerConfig from = config;
    from.resume = entry.path().string();
    test::expect_same_end(train(from), straight);
    ++resumed;
  }
  EXPECT_EQ(resumed, 4) << "after steps 3, 6, 9 and 12";
}

TEST(ImageSizes, AResumedRunMustHaveTheSame) {
  const test::TempDir folder;
  TrainerConfig config = config_of_sizes();
  config.checkpoint_dir = folder.path();
  (void)train(config);
  config.resume = "auto";
  config.image_sizes = {{{8, 8}, 0}, {{16, 16}, 1}};
  EXPECT_ERROR(ArgumentError, train(config), "--image-size", "8:0,16:1", "8:0,12:1,16:2");
  config.image_sizes.clear();
  EXPECT_ERROR(ArgumentError, train(config), "--image-size", "not given", "8:0,12:1,16:2");
}

TEST(ImageSizes, TheModelTakesImagesOfTheSizeThatValidated) {
  const test::TempDir folder;
  TrainerConfig config = config_of_sizes();
  config.run_dir = folder.path() / "run";
  config.val_image_size = {20, 20};
  (void)train(config);
  const ModelInfo info = load_model(config.run_dir / "model.safetensors").info;
  EXPECT_EQ(info.images.height, 20);
  EXPECT_EQ(info.images.width, 20);
  EXPECT_EQ(info.shorter_side, 25);
}

TEST(ImageSizes, NeedImagesThatAreResized) {
  const auto data = synthetic({16, 16, 3, 5}, 40, 1);
  AnySize model;
  Trainer trainer(config_of_sizes());
  EXPECT_ERROR(ArgumentError, trainer.fit(model, *data, *data), "--image-size");
}

TEST(ImageSizes, AreInTheOrderOfTheirEpochs) {
  const auto refused = [](std::vector<SizeFrom> sizes, std::int64_t last) {
    TrainerConfig config = config_of_sizes();
    config.image_sizes = std::move(sizes);
    config.image_size = last;
    return test::message_of([&] { check(config); });
  };
  EXPECT_EQ(refused({{{8, 8}, 0}, {{16, 16}, 1}}, 16), "");
  EXPECT_TRUE(test::names(refused({{{8, 8}, 1}, {{16, 16}, 2}}, 16), {"--image-size", "8:1,16:2", "0"}));
  EXPECT_TRUE(test::names(refused({{{8, 8}, 0}, {{12, 12}, 3}, {{16, 16}, 3}}, 16),
                          {"--image-size", "8:0,12:3,16:3"}));
  EXPECT_TRUE(test::names(refused({{{8, 8}, 0}, {{16, 16}, 1}}, 8), {"--image-size", "8:0,16:1", "8"}));
}

}  // namespace athanor::image_sizes_test
