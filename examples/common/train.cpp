#include "common/train.h"

#include "nn/models/model.h"
#include "trainer/progress.h"
#include "trainer/run_main.h"
#include "trainer/trainer.h"

namespace athanor::examples {

int train(int argc, char** argv, TrainerConfig defaults,
          const std::function<Data(const TrainerConfig&)>& data) {
  return run_main(argc, argv, [&](int count, char** arguments) {
    defaults.models = nn::model_names();
    const TrainerConfig config = parse_flags(count, arguments, defaults);
    Trainer trainer(config);
    trainer.add(std::make_unique<Progress>());
    const auto [training, test] = data(config);
    const ImageSpec& spec = training->spec();
    const auto model = nn::make_model(config.model, {spec.classes, spec.channels, spec.height}, config.seed);
    return exit_code(trainer.fit(*model, *training, *test));
  });
}

}  // namespace athanor::examples
