#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "data/dataset.h"
#include "nn/module.h"
#include "optim/precision.h"
#include "trainer/classifier.h"
#include "trainer/config.h"

// What bench_step trains.

namespace athanor::bench {

/// MODEL:BATCH[:PRECISION[:OPTIMIZER[:augment]]]
struct StepWorkload {
  std::string model;
  std::int64_t batch = 0;
  Precision precision = Precision::f16;
  OptimizerKind optimizer = OptimizerKind::sgd;
  /// Images are mirrored, and of 64 pixels a side and more a random part is scaled, of smaller ones shifted
  /// by up to 4 pixels.
  bool augments = false;
  std::int64_t image_size = 0;  ///< pixels a side; 0: the model's

  /// "resnet50:256:f16:sgd", or with ":augment"
  std::string name() const;
};

/// Throws ArgumentError that names what a workload must be.
StepWorkload step_workload(const std::string& text);
/// ResNet-50 of 256 images, ResNet-18 for CIFAR of 512 and CifarNet of 2,000, in f16.
std::vector<StepWorkload> default_step_workloads();

/// A model with its initial values, the images of `steps` steps, and the configuration of a Trainer whose
/// data are on `device`.
struct StepTraining {
  StepTraining(const StepWorkload& workload, std::int64_t steps, Device device);

  std::unique_ptr<nn::Module> model;
  std::unique_ptr<Classifier> task;
  std::unique_ptr<Dataset> images;
  TrainerConfig config;
};

}  // namespace athanor::bench
