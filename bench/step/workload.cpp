#include "bench/step/workload.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <optional>
#include <sstream>

#include <fmt/format.h>

#include "nn/models/model.h"
#include "tensor/base/error.h"
#include "trainer/flags/recipe.h"

namespace athanor::bench {
namespace {

/// Noise: a GPU computes faster on zeros. Few images differ, since nothing learns from them.
class RepeatedNoise final : public Dataset {
 public:
  RepeatedNoise(const ImageSpec& spec, std::int64_t size)
      : spec_(spec), size_(size), pixels_(static_cast<std::size_t>(kDistinct * spec.bytes())) {
    std::uint64_t state = 0x9E3779B97F4A7C15;
    for (std::byte& pixel : pixels_) {
      state = state * 6364136223846793005 + 1442695040888963407;
      pixel = static_cast<std::byte>(state >> 56);
    }
  }

  std::int64_t size() const override { return size_; }
  const ImageSpec& spec() const override { return spec_; }
  bool resident() const override { return true; }
  StoredSample fetch(std::int64_t index, std::vector<std::byte>&) const override {
    StoredSample sample;
    const auto bytes = static_cast<std::size_t>(spec_.bytes());
    sample.bytes = std::span(pixels_).subspan(static_cast<std::size_t>(index % kDistinct) * bytes, bytes);
    sample.height = spec_.height, sample.width = spec_.width, sample.channels = spec_.channels;
    sample.label = index % spec_.classes;
    return sample;
  }

 private:
  static constexpr std::int64_t kDistinct = 61;
  ImageSpec spec_;
  std::int64_t size_;
  std::vector<std::byte> pixels_;
};

constexpr std::array kPrecisions{Precision::f32, Precision::tf32, Precision::bf16, Precision::f16};

template <class All> auto named(const All& all, const std::string& name) {
  const auto found = std::find_if(all.begin(), all.end(), [&](auto one) { return name_of(one) == name; });
  return found == all.end() ? std::nullopt : std::optional(*found);
}

}  // namespace

std::string StepWorkload::name() const {
  return fmt::format("{}:{}:{}:{}{}", model, batch, name_of(precision), name_of(optimizer),
                     augments ? ":augment" : "");
}

StepWorkload step_workload(const std::string& text) {
  std::vector<std::string> words;
  std::istringstream parts(text);
  for (std::string word; std::getline(parts, word, ':');) words.push_back(word);
  words.resize(std::max<std::size_t>(words.size(), 5));
  StepWorkload workload;
  workload.model = words[0];
  workload.batch = std::atoll(words[1].c_str());
  const auto precision = words[2].empty() ? Precision::f16 : named(kPrecisions, words[2]);
  const auto optimizers = optimizer_table();
  const auto optimizer =
      std::ranges::find(optimizers, words[3].empty() ? "sgd" : words[3], &OptimizerEntry::name);
  workload.augments = words[4] == "augment";
  ATH_CHECK(words.size() == 5 && workload.batch > 0 && precision && optimizer != optimizers.end() &&
                (workload.augments || words[4].empty()),
            "bench_step: a workload must be MODEL:BATCH[:f32|tf32|bf16|f16[:sgd|adam|adamw|muon[:augment]]], "
            "but got '{}'",
            text);
  workload.precision = *precision;
  workload.optimizer = optimizer->kind;
  (void)nn::model_options(workload.model);  // throws where there is no such model
  return workload;
}

std::vector<StepWorkload> default_step_workloads() {
  return {step_workload("resnet50:256:f16:sgd"), step_workload("resnet18_cifar:512:f16:sgd"),
          step_workload("cifarnet:2000:f16:muon")};
}

StepTraining::StepTraining(const StepWorkload& workload, std::int64_t steps, Device device) {
  const nn::ModelOptions size = nn::model_options(workload.model, {.image_size = workload.image_size});
  const ImageSpec spec{size.image_size, size.image_size, size.in_channels, size.classes};
  model = nn::make_model(workload.model, size, 0);
  task = std::make_unique<Classifier>(*model, spec.classes);
  images = std::make_unique<RepeatedNoise>(spec, steps * workload.batch);
  config.program = "bench_step";
  config.device = device;
  config.epochs = 1;
  config.max_steps = steps;
  config.batch_size = workload.batch;
  config.precision = workload.precision;
  config.optimizer_kind = workload.optimizer;
  config.lr = 1e-3;
  config.schedule_options.kind = ScheduleKind::constant;
  config.data_on_device = true;
  config.progress = false;
  if (workload.augments && spec.height >= 64) config.augment.resized_crop = RandomResizedCrop{};
  if (workload.augments && spec.height < 64) config.augment.pad = 4;
  config.augment.flip = workload.augments;
  const auto channels = static_cast<std::size_t>(spec.channels);
  config.pixel_mean.assign(channels, 0.5);
  config.pixel_stddev.assign(channels, 0.25);
}

}  // namespace athanor::bench
