#include "nn/onnx/detail/graph.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>

#include "autograd/creation.h"
#include "autograd/grad_mode.h"
#include "autograd/shape.h"

namespace athanor::nn::onnx {
namespace {

constexpr std::array kToNchw{0, 3, 1, 2}, kToOurs{0, 2, 3, 1};

std::size_t index_of(Layout layout) {
  return static_cast<std::size_t>(layout);
}

Tensor on_host(const Tensor& tensor, std::span<const int> order) {
  const NoGrad no_grad;
  return clone(permute(tensor.detach().to(kCpu), order));
}

std::vector<int> straight(int rank) {
  std::vector<int> order;
  for (int i = 0; i < rank; ++i) order.push_back(i);
  return order;
}

bool same_bytes(const Tensor& a, const Tensor& b) {
  if (TensorPlace(a) == TensorPlace(b)) return true;
  const Tensor left = on_host(a, straight(a.rank())), right = on_host(b, straight(b.rank()));
  return std::memcmp(left.raw_data(), right.raw_data(), left.bytes()) == 0;
}

void check_fixed(bool holds, const Value& value) {
  ATH_CHECK(holds,
            "export_onnx: whatever depends on the input must be computed with ops of autograd/, but a {} {} "
            "differs between two inputs and was computed elsewhere",
            value.two.dtype(), value.two.shape());
}

std::vector<std::int64_t> as_integers(std::span<const int> order) {
  return {order.begin(), order.end()};
}

}  // namespace

int axis_in(Layout layout, int axis) {
  constexpr std::array kNchw{0, 2, 3, 1};
  return layout == Layout::ours ? axis : kNchw.at(static_cast<std::size_t>(axis));
}

Graph::Graph(Value& input, std::string name, Layout layout) : input_(std::move(name)) {
  names_[input_] = 1;
  define(input, input_, layout);
}

// Values ---------------------------------------------------------------------------------------------------

std::string Graph::tensor(Value& value, Layout layout) {
  const bool fixed = !value.varies && value.has_fixed_shape();
  if (fixed && (layout == Layout::ours || value.rank() == 0)) return constant(value, straight(value.rank()));
  if (fixed) return constant(value, kToNchw);
  if (const auto images = flattened_.find(&value); images != flattened_.end() && !places_.contains(&value))
    define(value, node("Flatten", {in_our_order(*images->second)}, {{"axis", std::int64_t{1}}}));
  if (!places_.contains(&value)) {
    ATH_CHECK(!value.varies, "export_onnx: every value must have been computed before it is read");
    define(value, expanded(value));
  }
  Place& place = places_.at(&value);
  std::string& name = place.name[index_of(layout)];
  if (name.empty()) {
    const std::span<const int> order(layout == Layout::nchw ? kToNchw : kToOurs);
    name = node("Transpose", {place.name[index_of(place.first)]}, {{"perm", as_integers(order)}});
  }
  return name;
}

std::string Graph::in_our_order(Value& value) {
  const Shape& shape = value.two.shape();
  const bool same = value.rank() == 4 && (shape[3] == 1 || shape[1] * shape[2] == 1);
  return tensor(value, same ? layout_of(value) : Layout::ours);
}

Layout Graph::layout_of(const Value& value) const {
  const auto place = places_.find(&value);
  return place == places_.end() ? Layout::ours : place->second.first;
}

void Graph::define(const Value& value, const std::string& name, Layout layout) {
  Place& place = places_[&value];
  place.first = layout;
  place.name[index_of(layout)] = name;
}

Value* Graph::flattened_images(const Value& y) const {
  const auto images = flattened_.find(&y);
  if (images == flattened_.end() || layout_of(*images->second) == Layout::ours) return nullptr;
  return images->second;
}

void Graph::alias(const Value& y, Value& x) {
  const Layout layout = layout_of(x);
  define(y, tensor(x, layout), layout);
}

// For a constant repeated N times: one copy, expanded.
std::string Graph::expanded(const Value& value) {
  const NoGrad no_grad;
  Tensor one = value.two;
  const auto first = [](const Tensor& x, int axis, std::int64_t size) {
    return narrow(x.detach(), axis, 0, size);
  };
  for (int axis = 0; axis < value.rank(); ++axis) {
    if (value.batches_in(axis) > 0) one = first(one, axis, 1);
  }
  for (const Tensor& all : {value.two, value.three})
    check_fixed(same_bytes(expand(one, all.shape()), all), value);
  return node("Expand", {constant(one), sizes(value)});
}

// Nodes ----------------------------------------------------------------------------------------------------

std::string Graph::fresh(const std::string& base) {
  std::string name = base;
  for (int& count = names_[base]; names_[name] > 0; name = fmt::format("{}_{}", base, count)) ++count;
  names_[name] = std::max(names_[name], 1);
  return name;
}

std::vector<std::string> Graph::nodes(const std::string& op, std::vector<std::string> inputs,
                                      std::vector<Attribute> attributes, int outputs) {
  const std::string name = fresh(layer_.empty() ? op : layer_ + "/" + op);
  std::vector<std::string> results;
  for (int i = 0; i < outputs; ++i) results.push_back(fmt::format("{}_output_{}", name, i));
  nodes_.push_back({op, name, std::move(inputs), results, std::move(attributes)});
  return results;
}

// Constants ------------------------------------------------------------------------------------------------

void Graph::check_constant(const Value& value) const {
  check_fixed(!value.varies && value.has_fixed_shape() && same_bytes(value.two, value.three), value);
}

std::string Graph::constant(const Value& value, std::span<const int> order) {
  const std::pair key(&value, std::vector<int>(order.begin(), order.end()));
  if (const auto known = constants_.find(key); known != constants_.end()) return known->second;
  check_constant(value);
  Tensor tensor = value.two.detach();
  if (tensor.rank() < std::ssize(order)) {  // as one that broadcasts to images
    Shape shape;
    for (int i = tensor.rank(); i < std::ssize(order); ++i) shape.push_back(1);
    for (const std::int64_t size : tensor.shape()) shape.push_back(size);
    tensor = reshape(tensor, shape);
  }
  const std::string name = fresh(value.name.empty() ? "constant" : value.name);
  add_tensor(name, on_host(tensor, order));
  return constants_[key] = name;
}

std::string Graph::constant_of_nchw(const Value& value, const Shape& images) {
  check_constant(value);
  const Tensor w = value.two.detach();
  const Tensor filters = reshape(w, {w.dim(0), images[0], images[1], images[2]});
  return constant(reshape(permute(filters, kToNchw), w.shape()), value.name);
}

std::string Graph::constant(const Tensor& tensor, const std::string& base) {
  const std::string name = fresh(base.empty() ? "constant" : base);
  add_tensor(name, on_host(tensor, straight(tensor.rank())));
  return name;
}

void Graph::add_tensor(const std::string& name, const Tensor& dense) {
  constexpr int kInitializer = 5;
  const auto most = static_cast<std::size_t>(std::numeric_limits<std::int32_t>::max());
  const std::size_t held = tensors_.text().size();
  ATH_CHECK(held < most && dense.bytes() < most - held,
            "export_onnx: an ONNX file must be smaller than 2 GB, but the weights are larger");
  tensors_.message(kInitializer,
                   tensor_message(name, dense.dtype(), dense.shape(), {dense.raw_data(), dense.bytes()}));
}

std::string Graph::numbers(const std::vector<float>& values, const Shape& shape) {
  std::string& name = numbers_[{{shape.begin(), shape.end()}, values}];
  if (name.empty()) name = constant(Tensor::from(values, shape));
  return name;
}

std::string Graph::integers(const std::vector<std::int64_t>& values) {
  std::string& name = integers_[values];
  if (name.empty()) name = constant(Tensor::from(values, {std::ssize(values)}), "sizes");
  return name;
}

std::string Graph::integer(std::int64_t value) {
  return constant(Tensor::from(std::vector<std::int64_t>{value}, {}), "index");
}

std::string Graph::batch() {
  if (batch_.empty()) {
    const std::string all = node("Shape", {input_});
    batch_ = node("Slice", {all, integers({0}), integers({1}), integers({0})});
  }
  return batch_;
}

std::string Graph::sizes(const Value& value, Layout layout) {
  std::vector<std::int64_t> axes(static_cast<std::size_t>(value.rank()));
  for (int axis = 0; axis < value.rank(); ++axis)
    axes[static_cast<std::size_t>(axis_in(layout, axis))] = axis;
  std::vector<std::string> parts;
  std::vector<std::int64_t> fixed;
  const auto end_fixed = [&] {
    if (!fixed.empty()) parts.push_back(integers(std::exchange(fixed, {})));
  };
  for (const std::int64_t axis : axes) {
    const std::int64_t batches = value.batches_in(static_cast<int>(axis));
    if (batches == 0) {
      fixed.push_back(value.two.dim(static_cast<int>(axis)));
      continue;
    }
    end_fixed();
    parts.push_back(batches == 1 ? batch() : node("Mul", {batch(), integers({batches})}));
  }
  end_fixed();
  if (parts.empty()) return integers({});
  return parts.size() == 1 ? parts[0] : node("Concat", parts, {{"axis", std::int64_t{0}}});
}

// The end --------------------------------------------------------------------------------------------------

Message Graph::finish(Value& output, const std::string& name, Layout layout) {
  layer_.clear();
  std::string last = tensor(output, layout);
  if (last == input_) last = node("Identity", {last});
  Message graph;
  for (Node& node : nodes_) {
    std::replace(node.inputs.begin(), node.inputs.end(), last, name);
    std::replace(node.outputs.begin(), node.outputs.end(), last, name);
    graph.message(1, node_message(node));
  }
  graph.append(std::move(tensors_));
  return graph;
}

}  // namespace athanor::nn::onnx
