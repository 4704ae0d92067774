#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "data/dataset.h"

namespace athanor::tool {

/// The test images of digits, mnist or cifar10, found as the training programs find them: `data_dir`, or else
/// $ATHANOR_DATA_DIR, or data-cache; any other text is a path, of whatever open_samples() takes. Throws
/// IoError. Says on stderr where a file is packed into the cache first.
std::unique_ptr<Dataset> open_named(const std::string& data, const std::string& data_dir = {});

struct ValidatedData {
  std::string name;  ///< for messages
  std::shared_ptr<const Dataset> stored;
};
/// What the run of this model.safetensors validated on, as the config.json of its folder tells: the test
/// images of a data set, --val, or its part of PHOTOS. Throws ArgumentError where it does not tell.
ValidatedData open_validated(const std::filesystem::path& model, const std::string& data_dir = {});

}  // namespace athanor::tool
