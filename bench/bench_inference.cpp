// What a forward pass costs, by how it is made: plain, in evaluation, under NoGrad, in InferenceMode, and by
// a Predictor. All take turns, round by round, on the same images and weights.
//
//     bench_inference [MODEL [BATCH [ROUNDS]]]             resnet20 64 50
//
// Prints for each the median time and how far single rounds are apart; the memory of tensors at the worst
// moment beside weights and images, with what kernels work in; and whether the logits are those of the
// recorded pass in evaluation, bit by bit. Ends with 1 where recording, or the way nothing is recorded,
// changes a bit of them.

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "autograd/grad_mode.h"
#include "bench/support/quantile.h"
#include "kernels/cpu/context.h"
#include "kernels/implementations.h"
#include "nn/models/model.h"
#include "tensor/base/error.h"
#include "trainer/inference/predictor.h"

namespace athanor::bench {
namespace {

constexpr int kWarm = 3;

/// A way of making a forward pass, and what it has cost.
struct Way {
  const char* name;
  std::function<Tensor(const Tensor&)> run;
  std::vector<double> ms = {};
  std::int64_t peak_bytes = 0;
  std::vector<double> logits = {};
};

/// Runs it once more, from images to the end of its result: a tape goes with it.
void measure(Way& way, const Tensor& images) {
  Allocator& allocator = allocator_of(kCpu);
  const std::int64_t before = allocator.stats().current;
  allocator.reset_peak();
  const auto began = std::chrono::steady_clock::now();
  {
    const Tensor logits = way.run(images);
    if (way.logits.empty()) way.logits = logits.detach().to_vector();
  }
  const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - began;
  way.ms.push_back(took.count());
  way.peak_bytes = allocator.stats().peak - before;
}

Predictor make_predictor(const std::string& model, const nn::ModelOptions& options) {
  ModelInfo info;
  info.images = {options.image_size, options.image_size, options.in_channels, options.classes};
  const auto channels = static_cast<std::size_t>(options.in_channels);
  info.pixels = {std::vector<double>(channels, 0.5), std::vector<double>(channels, 0.25)};
  return {nn::make_model(model, options, 1), info};
}

std::vector<Way> ways_of(nn::Module& network, const Predictor& predictor) {
  const auto evaluated = [&network](const Tensor& x) {
    network.eval();
    return network(x);
  };
  return {{"plain: train(), recorded",
           [&network](const Tensor& x) {
             network.train();
             return network(x);
           }},
          {"eval(), recorded", evaluated},
          {"eval(), NoGrad",
           [=](const Tensor& x) {
             const NoGrad guard;
             return evaluated(x);
           }},
          {"eval(), InferenceMode",
           [=](const Tensor& x) {
             const InferenceMode guard;
             return evaluated(x);
           }},
          {"Predictor", [&predictor](const Tensor& x) { return predictor.logits(x); }}};
}

/// "the same bits", or the largest difference in parts of the largest logit.
std::string beside(const std::vector<double>& logits, const std::vector<double>& others) {
  if (logits == others) return "the same bits";
  double largest = 0, off = 0;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    largest = std::max(largest, std::abs(others[i]));
    off = std::max(off, std::abs(logits[i] - others[i]));
  }
  return fmt::format("off by {:.1g}", off / largest);
}

int compare(const std::string& model, std::int64_t batch, int rounds) {
  const nn::ModelOptions options = nn::model_options(model);
  const std::int64_t side = options.image_size;
  const auto network = nn::make_model(model, options, 1);
  const Predictor predictor = make_predictor(model, options);
  std::vector<float> pixels(static_cast<std::size_t>(batch * side * side * options.in_channels));
  for (std::size_t i = 0; i < pixels.size(); ++i) pixels[i] = std::sin(static_cast<float>(i % 10007));
  const Tensor images = Tensor::from(pixels, {batch, side, side, options.in_channels});
  std::vector<Way> ways = ways_of(*network, predictor);
  // First in evaluation: passes of a network that trains move its running statistics.
  for (auto way = ways.rbegin(); way != ways.rend(); ++way) measure(*way, images);
  for (int round = 1; round < kWarm + rounds; ++round)
    for (Way& way : ways) measure(way, images);

  const Way& recorded = ways[1];
  const auto median_of = [](const Way& way) { return quantile({way.ms.begin() + kWarm, way.ms.end()}, 0.5); };
  fmt::print("{}, {} images of {}x{}x{}, f32, {} threads, {}; medians of {} rounds\n\n", model, batch, side,
             side, options.in_channels, cpu_context().threads(), cpu_implementations(), rounds);
  fmt::print("{:<26} {:>9} {:>19} {:>6} {:>9}   {}\n", "", "ms", "p10 - p90", "time", "peak MB", "logits");
  bool same = true;
  for (const Way& way : ways) {
    const std::vector<double> ms(way.ms.begin() + kWarm, way.ms.end());
    fmt::print("{:<26} {:>9.3f} {:>9.3f} -{:>8.3f} {:>6.2f} {:>9.2f}   {}\n", way.name, median_of(way),
               quantile(ms, 0.1), quantile(ms, 0.9), median_of(way) / median_of(recorded),
               static_cast<double>(way.peak_bytes) / 1e6, beside(way.logits, recorded.logits));
  }
  for (const int unrecorded : {2, 3}) same &= ways[unrecorded].logits == recorded.logits;
  return same ? 0 : 1;
}

}  // namespace
}  // namespace athanor::bench

int main(int argc, char** argv) {
  try {
    const std::string model = argc > 1 ? argv[1] : "resnet20";
    const std::int64_t batch = argc > 2 ? std::atoll(argv[2]) : 64;
    const int rounds = argc > 3 ? std::atoi(argv[3]) : 50;
    ATH_CHECK(batch >= 1 && rounds >= 1, "bench_inference: must have a BATCH and ROUNDS of at least 1");
    return athanor::bench::compare(model, batch, rounds);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return 2;
  }
}
