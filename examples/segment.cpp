// Segmentation: a U-Net learns the shape at each pixel, from pictures and masks drawn by this program.
// build/cpu/bin/segment --help

#include <random>

#include <athanor.h>

using namespace athanor;

/// Discs, squares and triangles in random colours on noise; the mask has the shape at each pixel.
struct Shapes : FieldDataset {
  enum Shape : std::uint8_t { nothing, disc, square, triangle, kShapes };
  static constexpr int kSide = 64;

  Shapes(std::int64_t count, std::uint64_t seed)
      : FieldDataset({.height = kSide, .width = kSide, .channels = 3},
                     {{"mask", DType::u8, {kSide, kSide}, FieldKind::mask}}),
        count_(count),
        seed_(seed) {}
  std::int64_t size() const override { return count_; }

  void read_fields(std::int64_t index, std::int64_t /*epoch*/, SampleRow& row) const override {
    std::mt19937_64 random(seed_ + static_cast<std::uint64_t>(index));
    const auto below = [&](std::uint64_t n) { return static_cast<int>(random() % n); };
    const std::span<std::uint8_t> image = row.image(), mask = row.get<std::uint8_t>("mask");
    for (std::uint8_t& byte : image) byte = static_cast<std::uint8_t>(below(160));
    std::fill(mask.begin(), mask.end(), nothing);
    for (int left = 1 + below(3); left > 0; --left) {
      const auto shape = static_cast<Shape>(1 + below(kShapes - 1));
      const int x = below(kSide), y = below(kSide), r = 6 + below(12);
      const int colour[] = {96 + below(160), 96 + below(160), 96 + below(160)};
      for (int i = 0; i < kSide * kSide; ++i) {
        if (!covers(shape, i % kSide - x, i / kSide - y, r)) continue;
        mask[static_cast<std::size_t>(i)] = shape;
        for (int c = 0; c < 3; ++c)
          image[static_cast<std::size_t>(3 * i + c)] =
              static_cast<std::uint8_t>(colour[c] * 3 / 4 + below(64));
      }
    }
  }

 private:
  static bool covers(Shape shape, int dx, int dy, int r) {
    if (shape == disc) return dx * dx + dy * dy <= r * r;
    if (shape == square) return std::max(std::abs(dx), std::abs(dy)) <= r;
    return dy <= r && 2 * std::abs(dx) <= dy + r;
  }

  std::int64_t count_;
  std::uint64_t seed_;
};

struct Segment : Task {
  nn::UNet unet{{.classes = Shapes::kShapes, .in_channels = 3}, {.depth = 3, .width = 16}};
  Segment() { network("unet", unet); }

  Tensor training_step(const Batch& batch, Step&) override {
    // 255 would mark pixels outside the image after a crop; this program only mirrors.
    return cross_entropy(unet(batch["image"]), batch["mask"], {.ignore_index = 255});
  }
  void validation_step(const Batch& batch, Step& step) override {
    const Tensor logits = unet(batch["image"]), mask = cast(batch["mask"], DType::i64);
    const Tensor predicted = argmax(logits, -1);
    step.log("loss", cross_entropy(logits, batch["mask"], {}));

    // Per picture: correctly classified pixels, among those with a shape in the mask or the prediction.
    const auto count = [](const Tensor& pixels) { return sum(cast(pixels, DType::f32), {1, 2}); };
    const Tensor right = logical_and(eq(predicted, mask), gt(mask, 0)),
                 either = logical_or(gt(predicted, 0), gt(mask, 0));
    step.log("iou", count(right) / count(either));

    const auto painted = [&](const Tensor& shapes) {  // 0, nothing, is black, and 3 is white
      return expand(unsqueeze(affine(cast(shapes, DType::f32), 2.0 / 3, -1), -1), batch["image"].shape());
    };
    step.images("samples", cat({cast(batch["image"], DType::f32), painted(mask), painted(predicted)}, 2),
                {.low = -1, .columns = 4, .at_most = 24});
  }
};

int main(int argc, char** argv) {
  TrainerConfig config{.program = "segment", .epochs = 10, .batch_size = 16, .lr = 0.05};
  config.augment = {.flip = true};
  config.pixel_mean = config.pixel_stddev = {0.5, 0.5, 0.5};  // pixels in [-1, 1]
  return train_main(argc, argv, config, dist::networks(), [](Trainer& trainer) {
    Segment task;
    task.networks().initialize(trainer.config().seed);
    return trainer.fit(task, Shapes(2000, 0), Shapes(200, 1'000'000));
  });
}
