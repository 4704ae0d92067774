#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "nn/detail/program.h"
#include "nn/onnx/detail/proto.h"

namespace athanor::nn::onnx {

using traced::Op;
using traced::Program;
using traced::Value;

/// The axis order of a value's tensor in the graph. Ours is [N, H, W, C] for images; ONNX convolutions and
/// pools take [N, C, H, W].
enum class Layout : std::uint8_t { ours, nchw };

/// The position in a layout of our axis `axis`.
int axis_in(Layout layout, int axis);

/// The graph under construction. A value may exist in both layouts: if an op needs the other one, a transpose
/// node is added once.
class Graph {
 public:
  /// Begins with the input: a tensor of that name and layout.
  Graph(Value& input, std::string name, Layout layout);

  /// The name of the tensor that holds a value; adds a constant or a transpose if needed.
  std::string tensor(Value& value, Layout layout = Layout::ours);
  /// The name of a tensor with the elements of a value in our order, whatever its shape.
  std::string in_our_order(Value& value);
  /// The layout in which a value was defined; ours for a constant.
  Layout layout_of(const Value& value) const;
  /// Declares that a value is in the tensor of that name.
  void define(const Value& value, const std::string& name, Layout layout = Layout::ours);
  /// Declares y [N, H W C] as the flattened images x; adds a node only if an op needs y itself.
  void define_flattened(const Value& y, Value& x) { flattened_[&y] = &x; }
  /// Those images if they exist in nchw, else null.
  Value* flattened_images(const Value& y) const;
  /// Declares value y equal to value x under another name.
  void alias(const Value& y, Value& x);

  /// Adds a node with one output, and returns its name.
  std::string node(const std::string& op, std::vector<std::string> inputs,
                   std::vector<Attribute> attributes = {}) {
    return nodes(op, std::move(inputs), std::move(attributes), 1).front();
  }
  std::vector<std::string> nodes(const std::string& op, std::vector<std::string> inputs,
                                 std::vector<Attribute> attributes, int outputs);
  /// Prefix of node names from now on.
  void set_layer(const std::string& layer) { layer_ = layer; }

  /// A weight or other constant, with its axes in `order`. Throws ArgumentError if it depends on the input.
  std::string constant(const Value& value, std::span<const int> order);
  std::string constant(const Tensor& tensor, const std::string& name = "");
  /// A weight [K, H W C] for images [H, W, C] flattened as C, H, W.
  std::string constant_of_nchw(const Value& value, const Shape& images);
  std::string numbers(const std::vector<float>& values, const Shape& shape = {});
  std::string integers(const std::vector<std::int64_t>& values);
  std::string integer(std::int64_t value);
  /// The sizes of a value's axes, i64, with N taken from the input.
  std::string sizes(const Value& value, Layout layout = Layout::ours);

  /// Names the output's tensor, in that layout, and returns nodes and weights as the fields of a graph.
  Message finish(Value& output, const std::string& name, Layout layout);

 private:
  struct Place {
    std::string name[2];  // by layout
    Layout first = Layout::ours;
  };

  std::string fresh(const std::string& base);
  std::string expanded(const Value& value);
  void check_constant(const Value& value) const;
  void add_tensor(const std::string& name, const Tensor& dense);
  std::string batch();

  std::map<const Value*, Place> places_;
  std::map<const Value*, Value*> flattened_;
  std::map<std::pair<const Value*, std::vector<int>>, std::string> constants_;
  std::map<std::vector<std::int64_t>, std::string> integers_;
  std::map<std::pair<std::vector<std::int64_t>, std::vector<float>>, std::string> numbers_;  // and by shape
  std::map<std::string, int> names_;  // number of requests per name
  std::vector<Node> nodes_;
  Message tensors_;
  std::string layer_, input_, batch_;
};

}  // namespace athanor::nn::onnx
