#include "nn/quantized/quantized_network.h"

#include <map>
#include <mutex>
#include <set>

#include "nn/quantized/detail/build.h"
#include "nn/quantized/detail/executor.h"
#include "nn/quantized/detail/index.h"

namespace athanor::nn {

using quantized::Executor;
using quantized::Graph;
using quantized::Op;
using quantized::OpKind;

namespace {

/// Has the buffers of a layer of the float network, under its name.
class Layer final : public Module {
 public:
  using Module::register_buffer;
  using Module::register_module;

  Tensor forward(const Tensor&) override {
    detail::fail<>("quantized: a layer of a quantized network must run as a part of it");
  }
  /// The child of that name, made if there is none.
  Layer& child(const std::string& name) {
    std::unique_ptr<Layer>& layer = children_[name];
    if (!layer) {
      layer = std::make_unique<Layer>();
      register_module(name, *layer);
    }
    return *layer;
  }

 private:
  std::map<std::string, std::unique_ptr<Layer>> children_;
};

}  // namespace

/// The buffers, and the graph as it runs with their present values.
struct QuantizedNetwork::State {
  std::map<std::string, std::unique_ptr<Layer>> layers;
  std::set<std::string> names;
  std::vector<Tensor> tensors;

  std::mutex mutex;  // of what follows
  std::shared_ptr<const Executor> executor;
  Device device;
  std::uint64_t version = 0;

  void add(QuantizedNetwork& network, const std::string& name, const Tensor& tensor);
  std::uint64_t versions() const {
    std::uint64_t sum = 0;
    for (const Tensor& tensor : tensors) sum += tensor.version();
    return sum;
  }
  std::shared_ptr<const Executor> current(const Graph& graph);
};

void QuantizedNetwork::State::add(QuantizedNetwork& network, const std::string& name, const Tensor& tensor) {
  if (!names.insert(name).second) return;  // a parameter that several ops read
  tensors.push_back(tensor);
  const std::size_t last = name.rfind('.');
  if (last == name.npos) return void(network.register_buffer(name, tensor));
  const std::size_t first = name.find('.');
  std::unique_ptr<Layer>& top = layers[name.substr(0, first)];
  if (!top) {
    top = std::make_unique<Layer>();
    network.register_module(name.substr(0, first), *top);
  }
  Layer* layer = top.get();
  for (std::size_t begin = first + 1; begin <= last;) {
    const std::size_t end = name.find('.', begin);
    layer = &layer->child(name.substr(begin, end - begin));
    begin = end + 1;
  }
  layer->register_buffer(name.substr(last + 1), tensor);
}

std::shared_ptr<const Executor> QuantizedNetwork::State::current(const Graph& graph) {
  const Device now = tensors.empty() ? kCpu : tensors.front().device();
  const std::uint64_t written = versions();
  const std::lock_guard lock(mutex);
  if (!executor || device != now || version != written) {
    executor = std::make_shared<const Executor>(graph);
    device = now;
    version = written;
  }
  return executor;
}

QuantizedNetwork::QuantizedNetwork(Graph graph, const Shape& sample)
    : graph_(std::move(graph)), sample_(sample), state_(std::make_unique<State>()) {
  for (const quantized::StoredQuantizer& stored : graph_.quantizers) {
    state_->add(*this, stored.name + ".scale", stored.scale);
    state_->add(*this, stored.name + ".zero", stored.zero);
  }
  for (const Op& op : graph_.ops) {
    const std::pair<const char*, const Tensor*> own[]{
        {"weight", &op.weight}, {"weight_scale", &op.weight_scale}, {"bias", &op.bias}, {"table", &op.table}};
    for (const auto& [name, tensor] : own) {
      if (tensor->defined()) state_->add(*this, op.name + "." + name, *tensor);
    }
    if (op.table.defined()) continue;  // instead of what its calls read
    for (const quantized::Constant& constant : op.constants)
      state_->add(*this, constant.name, constant.value);
  }
  eval();
}

namespace {

/// The architecture's ops, whatever its values.
Graph graph_of(Module& architecture, const Shape& sample, const StateDict& state) {
  architecture.load_state_dict(architecture.state_dict());  // its values are those it has
  return int8_graph(quantized::float_graph(architecture, sample), [&](const Op& product) {
    const StateDict::Value* const weight = state.find(product.name + ".weight");
    const Tensor* const tensor = weight ? std::get_if<Tensor>(weight) : nullptr;
    return tensor && is_floating(tensor->dtype());
  });
}

}  // namespace

QuantizedNetwork::QuantizedNetwork(Module& architecture, const Shape& sample, const StateDict& state)
    : QuantizedNetwork(graph_of(architecture, sample, state), sample) {
  load_state_dict(state);
  check();
}

QuantizedNetwork::~QuantizedNetwork() = default;

void QuantizedNetwork::check() {
  (void)state_->current(graph_);
}

Tensor QuantizedNetwork::forward(const Tensor& x) {
  const Shape& one = graph_.values[quantized::at(graph_.input)].shape.one;
  const std::shared_ptr<const Executor> executor = state_->current(graph_);
  bool fits = x.defined() && x.dtype() == DType::f32 && x.device() == state_->device &&
              x.rank() == one.rank() && x.dim(0) > 0;
  for (int axis = 1; fits && axis < one.rank(); ++axis) fits = x.dim(axis) == one[axis];
  ATH_CHECK(fits, "quantized: x must be f32 [N, ...] of {} on {}, but got {}", sample_, state_->device.str(),
            x.defined() ? fmt::format("{} {} on {}", x.dtype(), x.shape(), x.device().str())
                        : "an undefined tensor");
  return executor->run(x);
}

std::vector<std::string> QuantizedNetwork::products_in(DType dtype) const {
  std::vector<std::string> names;
  for (const Op& op : graph_.ops) {
    if (op.kind == OpKind::product && op.weight.dtype() == dtype) names.push_back(op.name);
  }
  return names;
}

bool is_quantized(const StateDict& state) {
  for (const StateDict::Entry& entry : state) {
    const Tensor* const tensor = std::get_if<Tensor>(&entry.value);
    if (tensor && tensor->dtype() == DType::i8) return true;
  }
  return false;
}

}  // namespace athanor::nn
