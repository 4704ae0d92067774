#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "data/dataset.h"
#include "data/formats/open.h"

namespace athanor::tool {

/// The test images of digits, mnist or cifar10, located as in the training programs: `data_dir`, else
/// $ATHANOR_DATA_DIR, else data-cache. Any other text is a path for open_samples(), as `how` asks for. Throws
/// IoError. Reports on stderr if a file is first packed into the cache.
std::unique_ptr<Dataset> open_named(const std::string& data, const std::string& data_dir = {},
                                    OpenOptions how = {});

struct ValidatedData {
  std::string name;  ///< for messages
  std::shared_ptr<const Dataset> stored;
};
/// The validation data of this model.safetensors' run, according to the config.json of its folder: a data
/// set's test images, --val, or its part of PHOTOS. `how` asks for labels; without names of fields, those are
/// the run's. Throws ArgumentError if it does not say.
ValidatedData open_validated(const std::filesystem::path& model, const std::string& data_dir = {},
                             OpenOptions how = {});
/// --fields of the run of this model.safetensors; empty: none, or unknown.
std::string fields_of_run(const std::filesystem::path& model);

}  // namespace athanor::tool
