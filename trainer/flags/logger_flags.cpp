// Flags about logging: what, and how often.

#include <algorithm>
#include <vector>

#include "tensor/nearest.h"
#include "trainer/flags/detail/read_flag.h"
#include "trainer/flags/detail/shared_flags.h"

namespace athanor::detail {
namespace {

/// Parses "json,csv" or "none" into the fields of the config.
bool read_loggers(TrainerConfig& config, const std::string& flag, const std::string& text) {
  const std::vector<std::string> names{"json", "csv", "tensorboard", "none"};
  std::vector<std::string> asked;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    asked.push_back(text.substr(begin, end - begin));
    ATH_CHECK(std::find(names.begin(), names.end(), asked.back()) != names.end(),
              "{}: must be a list of json, csv and tensorboard, or none, but got '{}'{}", flag, asked.back(),
              did_you_mean(asked.back(), names));
    begin = end + 1;
  }
  const auto has = [&](const char* name) {
    return std::find(asked.begin(), asked.end(), name) != asked.end();
  };
  ATH_CHECK(!has("none") || asked.size() == 1, "{}: none cannot be combined with other formats, but got '{}'",
            flag, text);
  config.log_csv = has("csv");
  config.log_tensorboard = has("tensorboard");
  return has("json");
}

}  // namespace

using namespace read_flag;

void add_logger_flags(FlagTable& flags, TrainerConfig& config) {
  flags.add(
      "--logger LIST",
      "log formats for the metrics of steps and epochs, in the run's folder: json (metrics.jsonl), csv "
      "(metrics.csv), tensorboard (events.out.tfevents...), several separated by commas, or none [json]",
      config.log_json, [&config](Text flag, Text text) { return read_loggers(config, flag, text); });
  flags.add("--log-every N", "log every N-th step, without waiting for the device [{}]", config.log_every,
            whole(1));
  flags.on("--summary",
           "show each layer's output, parameters, FLOPs and activations for one image, then train",
           config.summary);
}

}  // namespace athanor::detail
