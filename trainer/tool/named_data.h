#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "data/dataset.h"
#include "data/formats/open.h"
#include "data/loader.h"
#include "trainer/inference/model_file.h"

namespace athanor::tool {

/// The images of that part of digits, mnist or cifar10, located as in the training programs: `data_dir`, else
/// $ATHANOR_DATA_DIR, else data-cache. Any other text is a path for open_samples(), as `how` asks for, with
/// that part of a folder with both. Throws IoError. Reports on stderr if a file is first packed into the
/// cache.
std::unique_ptr<Dataset> open_named(const std::string& data, const std::string& data_dir = {},
                                    OpenOptions how = {}, Split split = Split::test);

/// How open_named() finds the labels that a model has: `fields` as a user gave them, else as in its run.
OpenOptions labels_for(const ModelFile& model, const std::string& fields, const BadSamples& bad);
/// The images with the preprocessing of the run's validation.
std::shared_ptr<const Dataset> as_validated(std::shared_ptr<const Dataset> stored, const ModelInfo& model);

struct ValidatedData {
  std::string name;  ///< for messages
  std::shared_ptr<const Dataset> stored;
};
/// The validation data of this model.safetensors' run, according to the config.json of its folder: a data
/// set's test images, --val, or its part of PHOTOS. `how` asks for labels; without names of fields, those are
/// the run's. Throws ArgumentError if it does not say.
ValidatedData open_validated(const std::filesystem::path& model, const std::string& data_dir = {},
                             OpenOptions how = {});
/// The model.safetensors that the model's run left: its own path, or that of what it was quantized from.
std::filesystem::path run_of(const ModelFile& model);
/// --fields of the run of this model.safetensors; empty: none, or unknown.
std::string fields_of_run(const std::filesystem::path& model);

}  // namespace athanor::tool
