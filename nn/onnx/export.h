#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "nn/module.h"

namespace athanor::nn {

/// The order of an image's axes.
enum class ImageLayout : std::uint8_t {
  nchw,  ///< as in ONNX
  nhwc,  ///< as in this library
};

struct OnnxOptions {
  /// Layout of the graph's input, and of results of rank 4 (images).
  ImageLayout input = ImageLayout::nchw;
  /// One value each per channel: the input is u8 pixels, and the graph computes (pixel / 255 - mean) /
  /// deviation. Empty: the input is f32, and the caller normalises.
  std::vector<double> pixel_mean = {}, pixel_deviation = {};
  /// The file's metadata_props: pairs of name and text.
  std::vector<std::pair<std::string, std::string>> metadata = {};
};

/// Writes a model as an ONNX file (opset 17, IR 8), in evaluation mode, f32. It has one input, "images" [N,
/// ...], and one output, "logits", for any N. `sample`: the shape of one input without N, for images [H, W,
/// C] whatever the layout. Weights keep their names of state_dict() and get the shapes of ONNX and PyTorch;
/// parts of forward() that do not depend on the input are computed here and stored.
///
/// The model runs twice, with two and with three random inputs, and its calls of ops of autograd/ become the
/// graph. So forward() must call the same ops for every input and compute its result by them alone. Anything
/// else that depends on the input's values is refused if the two runs show it. The result must not depend on
/// random draws. Afterwards modules are in their previous mode.
///
/// A QuantizedNetwork, whose sample must be that one, is written as QDQ, as its graph says: weights in i8
/// with a scale per channel, and a QuantizeLinear and a DequantizeLinear node after each op whose result is
/// u8, with the op itself between f32 tensors. A runtime computes such an op in 8-bit integers, with at most
/// one step of its result's quantizer of difference: it rounds a product of other scales.
///
/// Throws ArgumentError naming an op that ONNX cannot express and the layer before it, on weights that are
/// not f32, and on a graph of 2 GB or more, which the format cannot hold. Throws IoError if it cannot write
/// the file. Any previous file is then kept. Source: the ONNX specification,
/// github.com/onnx/onnx/blob/main/docs/IR.md.
void export_onnx(Module& model, const Shape& sample, const std::filesystem::path& path,
                 const OnnxOptions& options = {});

}  // namespace athanor::nn
