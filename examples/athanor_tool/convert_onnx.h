#pragma once

#include <filesystem>
#include <string>

#include "nn/module.h"
#include "trainer/inference/model_file.h"

namespace athanor::tool {

/// The graph's image input.
struct OnnxForm {
  std::string input;        ///< nchw or nhwc; empty: nhwc for pixels, else nchw
  bool preprocess = false;  ///< u8 pixels, normalised by the graph
};

/// Writes a network as an ONNX file, with its description() in the file's metadata, where classes without
/// names have numbers, and `preprocess`: inside or outside the graph. Throws what nn::export_onnx() throws.
void write_onnx(nn::Module& network, const ModelInfo& info, const std::filesystem::path& out,
                const OnnxForm& form);

}  // namespace athanor::tool
