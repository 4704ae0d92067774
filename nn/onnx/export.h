#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "nn/module.h"

namespace athanor::nn {

/// The order of the axes of images.
enum class ImageLayout : std::uint8_t {
  nchw,  ///< as ONNX has them
  nhwc,  ///< as we do
};

struct OnnxOptions {
  /// Of the graph's input, and of results that are images: of rank 4.
  ImageLayout input = ImageLayout::nchw;
  /// One each per channel: the input is u8 pixels, and (pixel / 255 - mean) / deviation is in the graph.
  /// Empty: the input is f32, and whoever runs the graph normalises.
  std::vector<double> pixel_mean = {}, pixel_deviation = {};
  /// The file's metadata_props: names and texts.
  std::vector<std::pair<std::string, std::string>> metadata = {};
};

/// Writes a model as an ONNX file (opset 17, IR 8), in evaluation mode, f32. It has one input, "images" [N,
/// ...], and one output, "logits"; N is any number. `sample`: the shape of one input without N, of images [H,
/// W, C] whatever the layout. Weights have their names of state_dict() and the shapes ONNX, and PyTorch, give
/// them; data-independent parts of forward() are computed here and stored.
///
/// The model runs twice, with two and with three random inputs, and the ops of autograd/ that it calls become
/// the graph. So forward() must call the same ops for every input, and reach its result by them alone: what
/// it reads or computes by itself of the input's values is refused where the two runs show it. It must also
/// not depend on what it draws at random. Afterwards modules are in the mode they were in.
///
/// Throws ArgumentError naming an op that has no form in ONNX and the layer before it, of weights that are
/// not f32, and of a graph of 2 GB or more, which the format cannot hold; IoError where the file cannot be
/// written. Then there is no file, or the one that was there. Source: the specification of ONNX,
/// github.com/onnx/onnx/blob/main/docs/IR.md.
void export_onnx(Module& model, const Shape& sample, const std::filesystem::path& path,
                 const OnnxOptions& options = {});

}  // namespace athanor::nn
