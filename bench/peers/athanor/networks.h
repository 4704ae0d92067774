#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "data/dataset.h"
#include "nn/module.h"
#include "tensor/tensor.h"

// What our sides of the comparisons of whole networks begin with.

namespace athanor::peers {

/// A training that is compared: so many steps are a run.
struct Workload {
  const char* network;
  std::int64_t batch, steps;
};
/// As bench/peers/workloads.py has them.
const std::vector<Workload>& workloads();

/// A model without values, and without dropout and stochastic depth: each side would draw other masks.
std::shared_ptr<nn::Module> make_network(const std::string& model);

/// Writes a network with made-up weights as a run leaves one. Throws IoError.
void save_network(const std::string& model, const std::filesystem::path& file);

/// [batch, H, W, C] f32: images whose pixels the others have in the order of images, channels, rows, columns.
Tensor made_up_images(const ImageSpec& spec, std::int64_t batch);

}  // namespace athanor::peers
