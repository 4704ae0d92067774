#pragma once

#include <deque>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "nn/onnx/detail/proto.h"
#include "nn/onnx/detail/trace.h"

namespace athanor::nn::onnx {

/// In which order a tensor of the graph has the axes of a value. Ours is [N, H, W, C] for images;
/// convolutions and pools of ONNX take [N, C, H, W].
enum class Layout : std::uint8_t { ours, nchw };

/// Where axis `axis` of ours is in a layout.
int axis_in(Layout layout, int axis);

/// The graph under construction. A value may be there in both layouts: nodes that transpose are made where an
/// op asks for the one it is not in, once.
class Graph {
 public:
  /// Begins with the input, a tensor of that name in that layout.
  Graph(Value& input, std::string name, Layout layout);

  /// The name of the tensor that holds a value, made where it must be: a constant, a transposed one.
  std::string tensor(Value& value, Layout layout = Layout::ours);
  /// The name of a tensor that holds the elements of a value in our order, whatever its shape.
  std::string in_our_order(Value& value);
  /// The layout in which a value is there already; of a constant, nchw where `preferred` is.
  Layout layout_of(const Value& value) const;
  /// Says that a value is in the tensor of that name.
  void define(const Value& value, const std::string& name, Layout layout = Layout::ours);
  /// Says that y [N, H W C] are the images x, flattened: a node only where an op asks for y as it is.
  void define_flattened(const Value& y, Value& x) { flattened_[&y] = &x; }
  /// Those images, if they are in nchw; or null.
  Value* flattened_images(const Value& y) const;
  /// Says that value y is what value x is, but for its name.
  void alias(const Value& y, Value& x);

  /// Adds a node with one output, and returns its name.
  std::string node(const std::string& op, std::vector<std::string> inputs,
                   std::vector<Attribute> attributes = {}) {
    return nodes(op, std::move(inputs), std::move(attributes), 1).front();
  }
  std::vector<std::string> nodes(const std::string& op, std::vector<std::string> inputs,
                                 std::vector<Attribute> attributes, int outputs);
  /// What names of nodes begin with from now on.
  void set_layer(const std::string& layer) { layer_ = layer; }

  /// A weight or another fixed value, its axes in that order. Throws ArgumentError where it is not the same
  /// for all inputs.
  std::string constant(const Value& value, std::span<const int> order);
  std::string constant(const Tensor& tensor, const std::string& name = "");
  /// A weight [K, H W C] for images [H, W, C] that are flattened as C, H, W.
  std::string constant_of_nchw(const Value& value, const Shape& images);
  std::string numbers(const std::vector<float>& values, const Shape& shape = {});
  std::string integers(const std::vector<std::int64_t>& values);
  std::string integer(std::int64_t value);
  /// The sizes of a value's axes, i64, with N taken from the input.
  std::string sizes(const Value& value, Layout layout = Layout::ours);

  /// Calls the output's tensor `name`, in that layout, and returns nodes and weights as a graph's fields.
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
  std::map<std::pair<std::vector<std::int64_t>, std::vector<float>>, std::string> numbers_;  // by shape, too
  std::map<std::string, int> names_;  // how often each has been asked for
  std::vector<Node> nodes_;
  Message tensors_;
  std::string layer_, input_, batch_;
};

}  // namespace athanor::nn::onnx
