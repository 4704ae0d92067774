#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "data/dataset.h"
#include "data/loader.h"
#include "nn/module.h"
#include "trainer/inference/evaluation.h"
#include "trainer/inference/model_file.h"

namespace athanor {

struct EvaluateOptions {
  std::int64_t top = 5;     ///< an image is right by top-k accuracy where its class is among so many
  std::int64_t worst = 10;  ///< mistakes that are kept
  Device device = kCpu;
  int workers = LoaderOptions::kAuto;                         ///< threads that read images
  std::function<void(const std::string& note)> on_note = {};  ///< LoaderOptions::on_warning
  std::function<void(std::int64_t images)> on_progress = {};  ///< told after each batch how many are done
};

/// The network of a classifier that nn::make_model() knows, with its weights. Throws IoError where they are
/// not those of that network, ArgumentError where the file is of another kind of network.
std::unique_ptr<nn::Module> make_network(const ModelFile& model);

/// Measures a classifier on labelled images of its size as the validation of its run did: in its precision,
/// in batches as large as each rank of the run had them, every layer by itself. On the same images, with as
/// many threads, loss and accuracy are those that the run reported, bit for bit.
/// Throws ArgumentError where images or classes are others than the model's, and what reading throws.
Evaluation evaluate(const ModelFile& model, const Dataset& data, const EvaluateOptions& options = {});
/// The same with a network of the caller's own, which takes the model's weights.
Evaluation evaluate(nn::Module& network, const ModelFile& model, const Dataset& data,
                    const EvaluateOptions& options = {});

/// What was measured, in front of text_of(): the model, the images, loss and accuracy, and those that the run
/// reported.
std::string summary_of(const ModelInfo& model, const Evaluation& evaluation, const Evaluated& of);

}  // namespace athanor
