#include "common/train.h"

#include <fmt/ranges.h>

#include "nn/models/model.h"
#include "tensor/error.h"
#include "tensor/printable.h"
#include "trainer/train_main.h"
#include "trainer/weights_file.h"

namespace athanor::examples {
namespace {

void begin_with(nn::Module& model, const TrainerConfig& config, std::int64_t classes, bool tell) {
  const std::filesystem::path& file = config.pretrained;
  nn::Pretrained taken;
  try {
    taken = load_weights(file, model, {.reset_head = config.reset_head});
  } catch (const ArgumentError& error) {
    detail::fail<>("--pretrained: {}", error.what());
  }
  if (!tell) return;
  fmt::print("pretrained: {} tensors from {}", taken.loaded, printable(file.string()));
  if (!taken.fresh.empty()) {
    const bool others = taken.classes != 0 && taken.classes != classes;
    fmt::print("; new, for {} classes{}: {}", classes,
               others ? fmt::format(" in place of {}", taken.classes) : "", fmt::join(taken.fresh, ", "));
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
    if (!config.pretrained.empty()) begin_with(*model, config, spec.classes, trainer.rank() == 0);
    return trainer.fit(*model, *training, *test);
  });
}

}  // namespace athanor::examples
