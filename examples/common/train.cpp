#include "common/train.h"

#include <fmt/ranges.h>

#include "dist/launch/launcher.h"
#include "nn/models/model.h"
#include "nn/pretrained.h"
#include "tensor/error.h"
#include "tensor/printable.h"
#include "tensor/safetensors.h"
#include "trainer/checkpoint.h"
#include "trainer/progress.h"
#include "trainer/run_main.h"
#include "trainer/run_on_ranks.h"
#include "trainer/trainer.h"

namespace athanor::examples {
namespace {

/// Weights of a checkpoint, which is checked, or of any safetensors file.
StateDict weights_of(const std::filesystem::path& file) {
  const StateDict all = safetensors::load(file);
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
  return run_main(argc, argv, [&](int count, char** arguments) {
    defaults.models = nn::model_names();
    TrainerConfig config = parse_flags(count, arguments, defaults);
    return run_on_ranks(config, arguments, dist::networks(), [&](dist::Transport* transport) {
      const bool first = !transport || transport->rank() == 0;
      Trainer trainer(config, transport);
      // mpirun's ranks believe they write to a terminal.
      if (first && transport) trainer.add(std::make_unique<Progress>(stdout, dist::launcher_has_terminal()));
      if (!transport) trainer.add(std::make_unique<Progress>());
      const auto [training, test] = data(config);
      const ImageSpec& spec = training->spec();
      const auto model =
          nn::make_model(config.model, {spec.classes, spec.channels, spec.height}, config.seed);
      if (!config.pretrained.empty()) begin_with(*model, config.pretrained, spec.classes, first);
      return exit_code(trainer.fit(*model, *training, *test));
    });
  });
}

}  // namespace athanor::examples
