#include "nn/detail/program.h"

#include <algorithm>
#include <map>
#include <utility>

#include "autograd/creation.h"
#include "autograd/grad_mode.h"

namespace athanor::nn::traced {
namespace {

constexpr const char* kBatchRule =
    "{}: forward() must call the same ops for batches of any size, but batches of 2 and 3 samples "
    "differ{}";

/// "conv1" of "conv1.weight".
std::string layer_of(const std::string& parameter) {
  const std::size_t dot = parameter.rfind('.');
  return dot == parameter.npos ? "" : parameter.substr(0, dot);
}

Shape batch_of(std::int64_t samples, const Shape& sample) {
  Shape shape{samples};
  for (const std::int64_t size : sample) shape.push_back(size);
  return shape;
}

}  // namespace

struct Program::Run {
  Tensor input, output;
  std::vector<TracedOp> ops;

  Run(Module& model, const Shape& shape, Device device) {
    input = randn(shape, RandomKey{1, static_cast<std::uint64_t>(shape[0])}, 0, 1, {DType::f32, device});
    OpTrace trace;
    output = model(input);
    ops = trace.ops();
  }
};

/// Maps the tensor places of both runs to values.
struct Program::Places {
  std::multimap<const std::byte*, std::pair<TensorPlace, Value*>> at[2];

  Value* find(int run, const Tensor& x) const {
    const auto [begin, end] = at[run].equal_range(x.raw_data());
    for (auto one = end; one != begin;) {  // the latest one
      --one;
      if (one->second.first == TensorPlace(x)) return one->second.second;
    }
    return nullptr;
  }
  void set(Value& value) {
    at[0].emplace(value.two.raw_data(), std::pair(TensorPlace(value.two), &value));
    at[1].emplace(value.three.raw_data(), std::pair(TensorPlace(value.three), &value));
  }
};

std::int64_t Value::batches_in(int axis) const {
  const std::int64_t small = two.dim(axis), more = three.dim(axis) - small;
  ATH_CHECK(
      more >= 0 && (more == 0 || small == kBatches[0] * more),
      "{}: sizes must be fixed or grow with the batch, but axis {} is {} with {} samples and {} with {}",
      caller, axis, small, kBatches[0], three.dim(axis), kBatches[1]);
  return more;
}

// Op -------------------------------------------------------------------------------------------------------

std::string Op::described() const {
  return fmt::format("'{}'{}", name,
                     layer.empty() ? "" : fmt::format(", at or after the layer '{}',", layer));
}

std::vector<double> Op::numbers(std::string_view attribute) const {
  const auto values_in = [&](const TracedOp& op) {
    const auto found = std::find_if(op.attributes.begin(), op.attributes.end(),
                                    [&](const TracedAttribute& one) { return one.name == attribute; });
    ATH_CHECK(found != op.attributes.end(), "{}: op '{}' must record its '{}', but does not", caller, name,
              attribute);
    return found->values;
  };
  const std::vector<double> values = values_in(*two), others = values_in(*three);
  const auto same = [](double a, double b) { return a == b || (a != a && b != b); };
  ATH_CHECK(std::equal(values.begin(), values.end(), others.begin(), others.end(), same),
            "{}: {} must have the same '{}' for all inputs, but it differs between two", caller, described(),
            attribute);
  return values;
}

std::vector<std::int64_t> Op::integers(std::string_view attribute) const {
  std::vector<std::int64_t> integers;
  for (const double number : numbers(attribute)) integers.push_back(static_cast<std::int64_t>(number));
  return integers;
}

// Program --------------------------------------------------------------------------------------------------

Program::Program(const char* caller, Module& model, const Shape& sample, Device device) : caller_(caller) {
  const NoGrad no_grad;
  Run two(model, batch_of(kBatches[0], sample), device), three(model, batch_of(kBatches[1], sample), device);
  traced_[0] = std::move(two.ops);
  traced_[1] = std::move(three.ops);
  read(two, three, model);
}

Value& Program::new_value(const Tensor& two, const Tensor& three) {
  ATH_CHECK(two.rank() == three.rank() && two.dtype() == three.dtype(), kBatchRule, caller_,
            " in a tensor's axes");
  values_.push_back({.two = two, .three = three, .name = {}, .caller = caller_});
  return values_.back();
}

void Program::read(const Run& two, const Run& three, const Module& model) {
  Places places;
  const StateDict state = model.state_dict();
  for (const StateDict::Entry& entry : state) {
    const Tensor& tensor = std::get<Tensor>(entry.value);
    Value& value = new_value(tensor, tensor);
    value.name = entry.name;
    places.set(value);
  }
  input_ = &new_value(two.input, three.input);
  input_->varies = true;
  places.set(*input_);
  ATH_CHECK(traced_[0].size() == traced_[1].size(), kBatchRule, caller_,
            fmt::format(": there are {} and {}", traced_[0].size(), traced_[1].size()));
  for (std::size_t i = 0; i < traced_[0].size(); ++i) read_op(traced_[0][i], traced_[1][i], places);
  output_ = places.find(0, two.output);
  ATH_CHECK(output_ && output_ == places.find(1, three.output) && output_->varies,
            "{}: forward() must compute its result from its input with ops of autograd/, but does not",
            caller_);
}

void Program::read_op(const TracedOp& two, const TracedOp& three, Places& places) {
  ATH_CHECK(two.name == three.name && two.inputs.size() == three.inputs.size() &&
                two.outputs.size() == three.outputs.size(),
            kBatchRule, caller_, fmt::format(": one calls {}, the other {}", two.name, three.name));
  Op op{std::string(two.name), {}, {}, &two, &three, ops_.empty() ? "" : ops_.back().layer, caller_};
  bool varies = two.inputs.empty();  // which the op did not report
  for (std::size_t i = 0; i < two.inputs.size(); ++i) {
    const Tensor &a = two.inputs[i], &b = three.inputs[i];
    ATH_CHECK(a.defined() == b.defined(), kBatchRule, caller_, fmt::format(" in the inputs of {}", two.name));
    if (!a.defined()) {
      op.inputs.push_back(nullptr);
      continue;
    }
    Value *value = places.find(0, a), *const other = places.find(1, b);
    ATH_CHECK(value == other, kBatchRule, caller_, fmt::format(" in the inputs of {}", two.name));
    if (!value) {
      value = &new_value(a, b);
      places.set(*value);
    }
    if (!value->name.empty()) op.layer = layer_of(value->name);
    varies = varies || value->varies;
    op.inputs.push_back(value);
  }
  for (std::size_t i = 0; i < two.outputs.size(); ++i) {
    Value& value = new_value(two.outputs[i], three.outputs[i]);
    value.varies = varies || !value.has_fixed_shape();
    places.set(value);
    op.outputs.push_back(&value);
  }
  ops_.push_back(std::move(op));
}

std::vector<const Op*> Program::ops() const {
  std::vector<const Value*> needed{output_};
  const auto is_needed = [&](const Value* value) {
    return std::find(needed.begin(), needed.end(), value) != needed.end();
  };
  std::vector<const Op*> result;
  for (auto op = ops_.rbegin(); op != ops_.rend(); ++op) {
    const bool wanted = std::any_of(op->outputs.begin(), op->outputs.end(),
                                    [&](const Value* value) { return value->varies && is_needed(value); });
    if (!wanted) continue;
    result.push_back(&*op);
    for (const Value* input : op->inputs) {
      if (input && input->varies && !is_needed(input)) needed.push_back(input);
    }
  }
  std::reverse(result.begin(), result.end());
  return result;
}

}  // namespace athanor::nn::traced
