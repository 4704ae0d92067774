#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "data/dataset.h"
#include "data/loader.h"
#include "trainer/inference/evaluation.h"
#include "trainer/inference/model_file.h"
#include "trainer/inference/results.h"

namespace athanor {

struct EvaluateOptions {
  std::int64_t top = 5;     ///< k of top-k accuracy
  std::int64_t worst = 10;  ///< number of worst mistakes to keep
  Device device = kCpu;
  int workers = LoaderOptions::kAuto;  ///< loader threads
  std::optional<TestViews> tta = {};   ///< unset: as the model's run validated
  /// Set: computes as a Predictor in that precision does. Unset: as the model's run validated.
  std::optional<Precision> precision = {};
  /// `skip` leaves images that cannot be read out of all figures.
  BadSamples bad_samples = {};
  /// Receives the loader's warnings, what the images lack of the model's classes, and how many were left out
  /// or have harmless defects.
  std::function<void(const std::string& note)> on_note = {};
  std::function<void(std::int64_t images)> on_progress = {};  ///< called after each batch with the total done
};

/// Measures a classifier on labelled images of its size, without EvaluateOptions::precision exactly as its
/// run's validation did: same precision, same batch per rank, no fusion. On the same images, with equally
/// many threads, loss and accuracy then equal those of the run, bit for bit. Classes are matched by name
/// where both have names. Throws ArgumentError if images differ from the model's, or have a class that it
/// lacks, and what reading throws.
Evaluation evaluate(const ModelFile& model, const Dataset& data, const EvaluateOptions& options = {});
/// The same with the caller's network, which receives the model's weights.
Evaluation evaluate(nn::Module& network, const ModelFile& model, const Dataset& data,
                    const EvaluateOptions& options = {});

/// Throws ArgumentError unless there are images, and of the size that the model takes.
void check_images(const ModelInfo& model, const Dataset& data);

/// Measures a model of any task alike, with the caller's network: `athanor evaluate`. Labels that are not
/// classes are matched by name, too.
std::unique_ptr<Results> evaluate_task(nn::Module& network, const ModelFile& model, const Dataset& data,
                                       const EvaluateOptions& options = {});

/// The model, the images, the most important figures, those reported by the run, and all as text.
std::string summary_of(const ModelInfo& model, const Results& results, const Evaluated& of);

}  // namespace athanor
