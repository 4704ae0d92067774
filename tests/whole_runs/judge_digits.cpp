// judge_digits FILE MNIST: 1,000 digits as a LeNet-5 sees them that was trained on real ones. FILE is a
// checkpoint of examples/dcgan.cpp, whose generator draws them, or has them as `samples` [1000, 28, 28, 1]
// (peer_digits.py). Fails where the judge is sure of less than 75 %, or a digit is less than 4 or more than
// 20 % of them. After ten epochs it is sure of 79.9 % of our digits and of 81.7 % of those that the same
// network of PyTorch draws (bench/results/dcgan_cpu.md): some of what a network of this size draws is no
// digit.
#define main example_main
#include "../../examples/dcgan.cpp"
#undef main

#include <algorithm>
#include <array>
#include <vector>

#include <fmt/ranges.h>

#include "nn/models/model.h"
#include "trainer/checkpoints/checkpoint.h"

namespace {

constexpr std::int64_t kSamples = 1000;

/// A classifier of MNIST whose pixels lie in [-1, 1], as a generator's do.
std::unique_ptr<nn::Module> trained_judge(const std::filesystem::path& folder) {
  TrainerConfig config{.program = "judge", .epochs = 2, .batch_size = 64};
  config.pixel_mean = config.pixel_stddev = {0.5};
  auto judge = nn::make_model("lenet5", {}, 1);
  const FitReport report =
      Trainer(config).fit(*judge, *mnist(folder, Split::train), *mnist(folder, Split::test));
  fmt::print("judge: {:.2f} % of MNIST's test images right\n", 100 * report.test_accuracy);
  judge->eval();
  return judge;
}

Tensor digits_of(const std::filesystem::path& file) {
  if (const StateDict others = safetensors::load(file); others.contains("samples"))
    return others.tensor("samples", {kSamples, 28, 28, 1});
  Generator generator;
  const StateDict saved = load_checkpoint(file);
  // Of weights that were averaged, the average, as validation sees it.
  const char* const weights = saved.contains_prefix("ema.") ? "ema." : "model.";
  generator.load_state_dict(saved.under(weights).under("generator."));
  generator.eval();
  return generator(randn({kSamples, 1, 1, 100}, {7, 0}));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const std::unique_ptr<nn::Module> judge = trained_judge(argv[2]);
  const InferenceMode inference;
  const TopK seen = topk(softmax((*judge)(digits_of(argv[1])), -1), 1);
  const std::vector<double> confidence = seen.values.to_vector(), digit = seen.indices.to_vector();
  std::array<int, 10> count{};
  int sure = 0;
  for (std::size_t i = 0; i < kSamples; ++i) {
    ++count[static_cast<std::size_t>(digit[i])];
    sure += confidence[i] > 0.9;
  }
  fmt::print("sure of {:.1f} %; each digit: {} of {}\n", sure * 100.0 / kSamples, fmt::join(count, ", "),
             kSamples);
  const auto [fewest, most] = std::minmax_element(count.begin(), count.end());
  return sure >= 0.75 * kSamples && *fewest >= 0.04 * kSamples && *most <= 0.2 * kSamples ? 0 : 1;
}
