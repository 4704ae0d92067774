// capstone: trains the two networks of the course's last stage by Athanor, from the first weights and with
// the batches of examples/course/stage10/given/capstone.h, and compares the losses with those recorded there.
// Prints the table; code 1 if one differs.
//   build/cpu/bin/course_capstone data/digits/digits.csv.gz

#include "examples/course/stage10/given/capstone.h"

#include <cmath>
#include <cstdio>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <zlib.h>

#include "athanor.h"

namespace athanor {
namespace {

namespace capstone = engine::capstone;

constexpr double kSame = 2e-5;  // room for another CPU's order of sums; a student's engine gets 1e-4

/// The first kImages lines of the file: 64 pixels of 0 to 16, and the label.
struct Digits {
  explicit Digits(const char* path) {
    const gzFile file = gzopen(path, "rb");
    ATH_CHECK(file, "capstone: {} must be a file", path);
    char line[512];
    while (labels.size() < capstone::kImages && gzgets(file, line, sizeof line)) {
      const char* at = line;
      for (int i = 0; i <= 64; ++i) {
        char* end = nullptr;
        const long number = std::strtol(at, &end, 10);
        i < 64 ? pixels.push_back(static_cast<float>(number) / 16) : labels.push_back(number);
        at = end + 1;
      }
    }
    gzclose(file);
    ATH_CHECK(labels.size() == capstone::kImages, "capstone: {} must have {} lines, but has {}", path,
              capstone::kImages, labels.size());
  }
  std::pair<Tensor, Tensor> batch(std::int64_t step) const {
    std::vector<float> images;
    std::vector<std::int64_t> of;
    for (std::int64_t i = 0; i < capstone::kBatch; ++i) {
      const std::int64_t image = capstone::image_of(step, i);
      images.insert(images.end(), pixels.begin() + image * 64, pixels.begin() + (image + 1) * 64);
      of.push_back(labels[static_cast<std::size_t>(image)]);
    }
    return {Tensor::from(images, {capstone::kBatch, 8, 8, 1}), Tensor::from(of, {capstone::kBatch})};
  }

  std::vector<float> pixels;
  std::vector<std::int64_t> labels;
};

/// The course's digits_cnn().
struct Cnn : nn::Sequential {
  Cnn() {
    const nn::Conv2dOptions same{.padding = 1};
    add<nn::Conv2d>(1, 8, 3, same).add<nn::BatchNorm>(8).add<nn::Relu>().add<nn::MaxPool2d>(2);
    add<nn::Conv2d>(8, 16, 3, same).add<nn::BatchNorm>(16).add<nn::Relu>().add<nn::MaxPool2d>(2);
    add<nn::Flatten>().add<nn::Linear>(64, 10);
  }
};

/// The course's Block.
struct Block : nn::Module {
  explicit Block(std::int64_t width)
      : norm1({width}),
        attention(width, {.heads = 4}),
        norm2({width}),
        up(width, 2 * width),
        down(2 * width, width) {
    register_module("norm1", norm1);
    register_module("attention", attention);
    register_module("norm2", norm2);
    register_module("up", up);
    register_module("down", down);
  }
  Tensor forward(const Tensor& x) override {
    const Tensor y = x + attention(norm1(x));
    return y + down(relu(up(norm2(y))));
  }
  nn::LayerNorm norm1;
  nn::MultiheadAttention attention;
  nn::LayerNorm norm2;
  nn::Linear up, down;
};

/// The course's DigitsTransformer.
struct Transformer : nn::Module {
  static constexpr std::int64_t kWidth = 32;
  Transformer() : embed(8, kWidth), block0(kWidth), block1(kWidth), norm({kWidth}), head(kWidth, 10) {
    position = register_parameter("position", Tensor::zeros({8, kWidth}));
    register_module("embed", embed);
    register_module("block0", block0);
    register_module("block1", block1);
    register_module("norm", norm);
    register_module("head", head);
  }
  Tensor forward(const Tensor& images) override {
    const Tensor tokens = embed(reshape(images, {images.shape()[0], 8, 8})) + position;
    return head(mean(norm(block1(block0(tokens))), {1}));
  }
  nn::Linear embed;
  Block block0, block1;
  nn::LayerNorm norm;
  nn::Linear head;
  Tensor position;
};

/// Our name of a parameter as the course has it.
std::string course_name(std::string name) {
  const std::pair<std::string, std::string> kOthers[] = {{"in_proj_", "qkv."}, {"out_proj.", "out."}};
  for (const auto& [ours, theirs] : kOthers)
    if (const std::size_t at = name.find(ours); at != std::string::npos)
      name.replace(at, ours.size(), theirs);
  return name;
}

/// Where element i of the course's shape is in ours. The course has images as [N, C, H, W] and filters as [K,
/// C, R, S]; a linear layer after an image of 2 x 2 has its columns in that order.
std::int64_t place_of(const Tensor& w, std::int64_t i, std::int64_t pixels) {
  const std::int64_t row = w.numel() / w.shape()[0], channels = row / pixels;
  const std::int64_t in_row = i % row, channel = in_row / pixels, pixel = in_row % pixels;
  return i / row * row + pixel * channels + channel;
}

void set_weights(nn::Module& net) {
  for (const Parameter& parameter : net.parameters()) {
    const Tensor& w = parameter.tensor;
    const bool flattened = parameter.name == "9.weight";
    if (w.rank() == 1) {  // a bias is 0, the scale of a norm 1
      const bool scale = parameter.name.ends_with("weight");
      for (std::int64_t i = 0; i < w.numel(); ++i) w.data<float>()[i] = scale ? 1.0f : 0.0f;
      continue;
    }
    const std::int64_t pixels = w.rank() == 4 ? w.shape()[1] * w.shape()[2] : flattened ? 4 : 1;
    const float deviation = std::sqrt(2.0f / static_cast<float>(w.numel() / w.shape()[0]));
    for (std::int64_t i = 0; i < w.numel(); ++i)
      w.data<float>()[place_of(w, i, pixels)] =
          capstone::first_value(course_name(parameter.name), deviation, i);
  }
}

/// The loss of every step.
template <class Optimizer, class Options>
std::vector<double> losses(nn::Module& net, const Digits& digits, const Options& options, float rate) {
  net.initialize(0);
  set_weights(net);
  ParameterArena arena(net.parameters(), net.buffers());
  Optimizer optimizer(arena, options);
  GradientMeter meter(arena);
  StepBuffer step;
  std::vector<double> all;
  for (std::int64_t i = 0; i < capstone::kSteps; ++i) {
    const auto [images, labels] = digits.batch(i);
    arena.zero_grad();
    const Tensor loss = cross_entropy(net(images), labels);
    all.push_back(loss.item());
    backward(loss);
    meter.measure(step);
    optimizer.set_learning_rates(step, schedules::constant(rate));
    optimizer.step(step);
    finish_step(step, LossScaling{});
  }
  return all;
}

int compare(const char* digits_path) {
  const Digits digits(digits_path);
  Cnn cnn;
  Transformer transformer;
  const std::vector<double> of_cnn =
      losses<Sgd>(cnn, digits, SgdOptions{.momentum = 0.9f, .decay = Decay::all}, capstone::kCnnRate);
  const std::vector<double> of_transformer =
      losses<AdamW>(transformer, digits, AdamWOptions{.decay = Decay::all}, capstone::kTransformerRate);
  bool same = true;
  for (const capstone::Losses& recorded : capstone::kAthanor) {
    const auto at = static_cast<std::size_t>(recorded.step - 1);
    std::printf("    {%lld, %.6f, %.6f},\n", static_cast<long long>(recorded.step), of_cnn[at],
                of_transformer[at]);
    same &= std::abs(of_cnn[at] - recorded.cnn) < kSame &&
            std::abs(of_transformer[at] - recorded.transformer) < kSame;
  }
  if (!same) std::printf("capstone: kAthanor in examples/course/stage10/given/capstone.h is another table\n");
  return same ? 0 : 1;
}

}  // namespace
}  // namespace athanor

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: course_capstone DIGITS.csv.gz\n");
    return 2;
  }
  return athanor::compare(argv[1]);
}
