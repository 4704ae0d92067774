#include "common/train.h"

#include <fmt/ranges.h>

#include "nn/models/model.h"
#include "nn/pretrained.h"
#include "tensor/error.h"
#include "tensor/printable.h"
#include "tensor/safetensors.h"
#include "trainer/checkpoint.h"
#include "trainer/model_file.h"
#include "trainer/train_main.h"

namespace athanor::examples {
namespace {

/// Weights of a run's model or checkpoint, which is checked, or of any safetensors file.
StateDict weights_of(const std::filesystem::path& file) {
  safetensors::Metadata metadata;
  const StateDict all = safetensors::load(file, &metadata);
  if (is_model(metadata)) return load_model(file).weights;
  return all.contains_prefix("model.") ? load_checkpoint(file).under("model.") : all;
}

void begin_with(nn::Module& model, const std::filesystem::path& file, std::int64_t classes, bool tell) {
  nn::Pretrained taken;
  try {
    taken = nn::load_pretrained(model, weights_of(file));
  } catch (const ArgumentError& error) {
    detail::fail<>("--pretrained: {}: {}", file.string(), error.what());
  }
  if (!tell) return;
  fmt::print("pretrained: {} tensors from {}", taken.loaded, printable(file.string()));
  if (!taken.fresh.empty()) {
    fmt::print("; new, for {} classes in place of {}: {}", classes, taken.classes,
               fmt::join(taken.fresh, ", "));
  }
  fmt::print("\n");
}

}  // namespace

int train(int argc, char** argv, TrainerConfig defaults,
          const std::function<Data(const TrainerConfig&)>& data) {
  defaults.models = nn::model_names();
  return train_main(argc, argv, defaults, dist::networks(), [&](Trainer& trainer) {
    const TrainerConfig& config = trainer.config();
    const auto [training, test] = data(config);
    const ImageSpec& spec = training->spec();
    const auto model = nn::make_model(config.model, {spec.classes, spec.channels, spec.height}, config.seed);
    if (!config.pretrained.empty()) begin_with(*model, config.pretrained, spec.classes, trainer.rank() == 0);
    return trainer.fit(*model, *training, *test);
  });
}

}  // namespace athanor::examples
