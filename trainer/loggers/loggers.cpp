#include "trainer/loggers/loggers.h"

#include <memory>
#include <system_error>

#include "trainer/checkpoints/run_folder.h"
#include "trainer/loggers/csv_log.h"
#include "trainer/loggers/tensorboard.h"
#include "trainer/trainer.h"

namespace athanor {

std::filesystem::path log_folder(const TrainerConfig& config) {
  return model_path(config.run_dir, config.phase).parent_path();
}

void open_log(std::optional<AppendedFile>& file, const FitInfo& info, const std::string& name) {
  file.reset();
  if (info.config.run_dir.empty() || !info.nothing_to_do.empty()) return;
  std::error_code ignored;  // opening the file reports any problem
  std::filesystem::create_directories(log_folder(info.config), ignored);
  file.emplace("--logger", log_folder(info.config) / name);
}

void add_loggers(Trainer& trainer, const TrainerConfig& config) {
  if (trainer.rank() != 0) return;
  if (config.log_csv) trainer.add(std::make_unique<CsvLog>());
  if (config.log_tensorboard) trainer.add(std::make_unique<TensorBoardLog>());
}

}  // namespace athanor
