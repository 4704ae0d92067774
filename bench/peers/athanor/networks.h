#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "data/dataset.h"
#include "tensor/tensor.h"

// What our sides of the comparisons of whole networks begin with.

namespace athanor::peers {

/// Writes a network with made-up weights as a run leaves one. Throws IoError.
void save_network(const std::string& model, const std::filesystem::path& file);

/// [batch, H, W, C] f32: images whose pixels the others have in the order of images, channels, rows, columns.
Tensor made_up_images(const ImageSpec& spec, std::int64_t batch);

}  // namespace athanor::peers
