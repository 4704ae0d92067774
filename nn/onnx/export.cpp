#include "nn/onnx/export.h"

#include <limits>
#include <span>

#include "autograd/grad_mode.h"
#include "nn/detail/evaluation.h"
#include "nn/onnx/detail/ops.h"
#include "nn/onnx/detail/quantized.h"
#include "nn/quantized/quantized_network.h"
#include "tensor/base/version.h"
#include "tensor/io/atomic_file.h"

namespace athanor::nn {
namespace {

constexpr std::int64_t kIrVersion = 8, kOpset = 17;
constexpr std::size_t kMaxBytes = std::numeric_limits<std::int32_t>::max();
constexpr const char *kInput = "images", *kOutput = "logits";

void check(const Module& model, const Shape& sample, const OnnxOptions& options) {
  for (const std::int64_t size : sample)
    ATH_CHECK(size > 0, "export_onnx: a sample must have elements, but is {}", sample);
  std::size_t bytes = 0;
  const StateDict state = model.state_dict();
  for (const StateDict::Entry& entry : state) bytes += std::get<Tensor>(entry.value).bytes();
  ATH_CHECK(bytes < kMaxBytes,
            "export_onnx: an ONNX file must be smaller than 2 GB, but the weights are {:.2f} GB",
            static_cast<double>(bytes) / 1e9);
  for (const Parameter& parameter : model.parameters())
    ATH_CHECK(parameter.tensor.dtype() == DType::f32,
              "export_onnx: weights must be f32, but '{}' is {}; write model.to(DType::f32)", parameter.name,
              parameter.tensor.dtype());
  const std::size_t means = options.pixel_mean.size(), deviations = options.pixel_deviation.size();
  ATH_CHECK(means == deviations &&
                (means == 0 || (sample.rank() == 3 && std::ssize(options.pixel_mean) == sample[2])),
            "export_onnx: each channel of {} needs a pixel mean and deviation, but there are {} means and {} "
            "deviations",
            sample, means, deviations);
}

onnx::Layout layout_of(const OnnxOptions& options, int rank) {
  return rank == 4 && options.input == ImageLayout::nchw ? onnx::Layout::nchw : onnx::Layout::ours;
}

/// A value's axes as written to the file.
std::vector<onnx::Dimension> dimensions(const onnx::Value& value, onnx::Layout layout) {
  std::vector<onnx::Dimension> result(static_cast<std::size_t>(value.rank()));
  for (int axis = 0; axis < value.rank(); ++axis) {
    const std::int64_t batches = value.batches_in(axis);
    onnx::Dimension& dimension = result[static_cast<std::size_t>(onnx::axis_in(layout, axis))];
    if (batches == 0) {
      dimension = value.two.dim(axis);
    } else {
      dimension = batches == 1 ? "N" : fmt::format("{}N", batches);
    }
  }
  return result;
}

/// Converts bytes to the model's input, at the beginning of the graph.
void normalize(onnx::Graph& graph, onnx::Value& input, onnx::Layout layout, const OnnxOptions& options) {
  const std::size_t channels = options.pixel_mean.size();
  std::vector<float> mean(channels), scale(channels);
  for (std::size_t c = 0; c < channels; ++c) {
    mean[c] = static_cast<float>(options.pixel_mean[c] * 255);
    scale[c] = static_cast<float>(1 / (options.pixel_deviation[c] * 255));
  }
  const auto count = static_cast<std::int64_t>(channels);
  const Shape shape = layout == onnx::Layout::nchw ? Shape{1, count, 1, 1} : Shape{count};
  const std::string pixels = graph.node("Cast", {kInput}, {{"to", onnx::data_type(DType::f32)}});
  const std::string centered = graph.node("Sub", {pixels, graph.numbers(mean, shape)});
  graph.define(input, graph.node("Mul", {centered, graph.numbers(scale, shape)}), layout);
}

/// The nodes by which lower(graph) computes the output from the input.
template <class F>
onnx::Message message_of(onnx::Value& input, onnx::Value& output, const OnnxOptions& options,
                         const F& lower) {
  const onnx::Layout input_layout = layout_of(options, input.rank()),
                     output_layout = layout_of(options, output.rank());
  onnx::Graph graph(input, kInput, input_layout);
  const bool pixels = !options.pixel_mean.empty();
  if (pixels) normalize(graph, input, input_layout, options);
  lower(graph);
  onnx::Message message = graph.finish(output, kOutput, output_layout);
  message.bytes(2, "athanor");
  message.message(
      11, onnx::value_message(kInput, pixels ? DType::u8 : DType::f32, dimensions(input, input_layout)));
  message.message(12, onnx::value_message(kOutput, output.two.dtype(), dimensions(output, output_layout)));
  return message;
}

onnx::Message graph_message(Module& model, const Shape& sample, const OnnxOptions& options) {
  const NoGrad no_grad;
  if (const auto* const quantized = dynamic_cast<const QuantizedNetwork*>(&model)) {
    onnx::QuantizedProgram program(quantized->graph());
    return message_of(program.input(), program.output(), options,
                      [&](onnx::Graph& graph) { program.lower(graph); });
  }
  const std::vector<Parameter> parameters = model.parameters();
  const onnx::Program program("export_onnx", model, sample,
                              parameters.empty() ? kCpu : parameters[0].tensor.device());
  return message_of(program.input(), program.output(), options, [&](onnx::Graph& graph) {
    for (const onnx::Op* op : program.ops()) onnx::lower(graph, *op);
  });
}

}  // namespace

void onnx::refuse(const Op& op, const std::string& reason) {
  detail::fail<>("export_onnx: every op must have an ONNX equivalent, but {} has none: {}", op.described(),
                 reason);
}

onnx::Lower onnx::lowering_of(std::string_view op) {
  for (const LowerTable* table :
       {&elementwise_ops(), &image_ops(), &norm_ops(), &product_ops(), &reduce_ops(), &shape_ops()}) {
    if (const auto found = table->find(op); found != table->end()) return found->second;
  }
  return nullptr;
}

void onnx::lower(Graph& graph, const Op& op) {
  const Lower function = op.inputs.empty() ? nullptr : lowering_of(op.name);
  if (!function) refuse(op, "build the model from ops of autograd/ that have one");
  graph.set_layer(op.layer);
  function(graph, op);
}

void export_onnx(Module& model, const Shape& sample, const std::filesystem::path& path,
                 const OnnxOptions& options) {
  check(model, sample, options);
  const onnx::Message graph = [&] {
    const Evaluation evaluation(model);
    return graph_message(model, sample, options);
  }();
  onnx::Message file, opset;
  file.integer(1, kIrVersion);
  file.bytes(2, "athanor");
  file.bytes(3, version());
  opset.bytes(1, "");
  opset.integer(2, kOpset);
  file.message(8, opset);
  for (const auto& [name, text] : options.metadata) file.message(14, onnx::pair_message(name, text));
  file.head_of_bytes(7, graph.text().size());
  ATH_CHECK(file.text().size() + graph.text().size() < kMaxBytes,
            "export_onnx: an ONNX file must be smaller than 2 GB, but {} has {} bytes", path.string(),
            file.text().size() + graph.text().size());
  AtomicFile out(path);
  for (const std::string* part : {&file.text(), &graph.text()}) out.write(std::as_bytes(std::span(*part)));
  out.commit();
}

}  // namespace athanor::nn
