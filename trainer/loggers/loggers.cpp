#include "trainer/loggers/loggers.h"

#include <memory>

#include "trainer/checkpoints/run_folder.h"
#include "trainer/loggers/csv_log.h"
#include "trainer/loggers/tensorboard.h"
#include "trainer/trainer.h"

namespace athanor {

std::filesystem::path log_folder(const TrainerConfig& config) {
  return model_path(config.run_dir, config.phase).parent_path();
}

void add_loggers(Trainer& trainer, const TrainerConfig& config) {
  if (trainer.rank() != 0) return;
  if (config.log_csv) trainer.add(std::make_unique<CsvLog>());
  if (config.log_tensorboard) trainer.add(std::make_unique<TensorBoardLog>());
}

}  // namespace athanor
