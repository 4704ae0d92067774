// Keypoints: a network locates the centres of three discs to a fraction of a pixel, each as the mean position
// of a heat map (soft-argmax). The program draws its pictures; points are mirrored with them.
// build/cpu/bin/keypoints --help
// Source: Levine et al. 2016, arXiv:1504.00702, section 5.1 (spatial softmax).

#include <random>

#include <athanor.h>

using namespace athanor;

constexpr int kSide = 48, kPoints = 3;

/// A red, a green and a blue disc on noise and grey rectangles, and their centres.
struct Discs : FieldDataset {
  Discs(std::int64_t count, std::uint64_t seed)
      : FieldDataset({.height = kSide, .width = kSide, .channels = 3},
                     {{"centres", DType::f32, {kPoints, 2}, FieldKind::points}}),
        count_(count),
        seed_(seed) {}
  std::int64_t size() const override { return count_; }

  void read_fields(std::int64_t index, std::int64_t /*epoch*/, SampleRow& row) const override {
    std::mt19937_64 random(seed_ + static_cast<std::uint64_t>(index));
    const auto below = [&](std::uint64_t n) { return static_cast<int>(random() % n); };
    const std::span<std::uint8_t> image = row.image();
    const auto paint = [&](const auto& inside, int red, int green, int blue) {
      const int colour[] = {red, green, blue};
      for (int i = 0; i < kSide * kSide; ++i)
        for (int c = 0; c < 3 && inside(i % kSide, i / kSide); ++c)
          image[static_cast<std::size_t>(3 * i + c)] =
              static_cast<std::uint8_t>(colour[c] * 3 / 4 + below(64));
    };
    paint([](int, int) { return true; }, 0, 0, 0);
    for (int left = 4; left > 0; --left) {
      const int x0 = below(kSide), y0 = below(kSide), width = 4 + below(20), grey = below(256);
      paint([=](int x, int y) { return x >= x0 && x < x0 + width && y >= y0 && y < y0 + width; }, grey, grey,
            grey);
    }
    const std::span<float> centres = row.get<float>("centres");
    for (int k = 0; k < kPoints; ++k) {
      const int cx = 4 + below(kSide - 8), cy = 4 + below(kSide - 8), r = 3 + below(4);
      paint([=](int x, int y) { return (x - cx) * (x - cx) + (y - cy) * (y - cy) <= r * r; }, 255 * (k == 0),
            255 * (k == 1), 255 * (k == 2));
      const auto x = static_cast<std::size_t>(2 * k), y = x + 1;
      centres[x] = static_cast<float>(cx) + 0.5f;  // the centre of that pixel
      centres[y] = static_cast<float>(cy) + 0.5f;
    }
  }

 private:
  std::int64_t count_;
  std::uint64_t seed_;
};

/// Pictures [N, H, W, 3] -> points [N, 3, 2] f32, x and y in pixels.
struct Locator : nn::Module {
  nn::Conv2d conv1{3, 16, 5, {.padding = 2, .activation = Activation::relu}};
  nn::Conv2d conv2{16, 32, 5, {.padding = 2, .activation = Activation::relu}};
  nn::Conv2d maps{32, kPoints, 5, {.padding = 2}};
  Locator() {
    register_module("conv1", conv1), register_module("conv2", conv2), register_module("maps", maps);
  }

  Tensor forward(const Tensor& x) override {
    const Tensor heat = reshape(cast(maps(conv2(conv1(x))), DType::f32), {x.dim(0), kSide, kSide, kPoints});
    const Tensor share = reshape(softmax(reshape(heat, {x.dim(0), -1, kPoints}), 1), heat.shape());
    const Tensor middles = arange(0.5, kSide, 1, {DType::f32, x.device()});  // of pixels
    const Tensor columns = reshape(middles, {kSide, 1}), rows = reshape(middles, {kSide, 1, 1});
    return stack({sum(share * columns, {1, 2}), sum(share * rows, {1, 2})}, 2);
  }
};

struct Keypoints : Task {
  Locator locator;
  Keypoints() { network("locator", locator); }

  Tensor training_step(const Batch& batch, Step&) override {
    return smooth_l1_loss(locator(batch["image"]), batch["centres"]);
  }
  void validation_step(const Batch& batch, Step& step) override {
    const Tensor found = locator(batch["image"]), centres = batch["centres"];
    step.log("loss", smooth_l1_loss(found, centres));
    step.log("pixels", sqrt(sum(square(found - centres), {2})));  // the error of each point
    step.log("squared_errors", square(found - centres), MetricReduce::exact);
    step.log("targets", centres, MetricReduce::exact);
    step.log("squares", square(centres), MetricReduce::exact);
  }
  /// The share of the coordinates' variance that is explained, from means over all validation data.
  std::vector<ValueOfSums> values_of_sums() const override {
    const auto r2 = [](std::span<const double> mean) { return 1 - mean[0] / (mean[2] - mean[1] * mean[1]); };
    return {{"r2", {"squared_errors", "targets", "squares"}, r2}};
  }
};

int main(int argc, char** argv) {
  TrainerConfig config{.program = "keypoints", .epochs = 3, .batch_size = 32, .lr = 0.02};
  config.augment.flip = true;
  return train_main(argc, argv, config, dist::networks(), [](Trainer& trainer) {
    Keypoints task;
    task.networks().initialize(trainer.config().seed);
    return trainer.fit(task, Discs(4000, 0), Discs(400, 1'000'000));
  });
}
