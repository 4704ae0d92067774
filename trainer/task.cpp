#include "trainer/task.h"

#include <algorithm>
#include <vector>

#include "autograd/creation.h"
#include "autograd/elementwise.h"
#include "autograd/grad_mode.h"
#include "autograd/reduce.h"
#include "autograd/shape.h"
#include "dist/all_gather.h"
#include "tensor/base/error.h"
#include "trainer/metrics/confusion.h"

namespace athanor {
namespace {

/// Entries whose name begins with one of the networks'.
template <class Named>
std::vector<Named> of_networks(std::vector<Named> all, const std::vector<std::string>& networks) {
  if (networks.empty()) return all;
  std::erase_if(all, [&](const Named& one) {
    return std::none_of(networks.begin(), networks.end(),
                        [&](const std::string& name) { return one.name.starts_with(name + "."); });
  });
  return all;
}

}  // namespace

/// Several named networks. Never called as a whole.
class Task::Networks final : public nn::Module {
 public:
  Tensor forward(const Tensor&) override {
    detail::fail<>("task: several networks must be called one by one, not as a whole");
  }
  void add(const std::string& name, nn::Module& module) {
    ATH_CHECK(std::find(added_.begin(), added_.end(), &module) == added_.end(),
              "task: a network must be registered once, but '{}' is there under another name", name);
    register_module(name, module);
    added_.push_back(&module);
  }

 private:
  std::vector<nn::Module*> added_;
};

Tensor Step::all_gather(const Tensor& t) {
  ATH_CHECK(ranks_,
            "all_gather: the task must declare that its steps gather, but does not; override gathers()");
  return dist::all_gather(t, *ranks_);
}

void Step::minimize(std::string_view optimizer, const Tensor& loss) {
  ATH_CHECK(minimizer_, "minimize: must be called in a training step, but '{}' is in a validation step",
            optimizer);
  minimizer_->minimize(optimizer, loss);
}

void Step::log_confusion(std::string_view name, const Tensor& prediction, const Tensor& target,
                         std::int64_t classes, bool per_class) {
  const NoGrad no_grad;
  const Tensor says = is_floating(prediction.dtype()) ? argmax(prediction.detach(), -1) : prediction;
  add(name, Confusion(classes, per_class), cast(says, DType::i64), cast(target, DType::i64));
}

void Step::log_absolute_error(std::string_view name, const Tensor& prediction, const Tensor& target) {
  ATH_CHECK(prediction.shape() == target.shape(),
            "log_absolute_error: '{}' must get two tensors of one shape, but got {} and {}", name,
            prediction.shape(), target.shape());
  const NoGrad no_grad;
  log(name, abs(prediction.detach() - target.detach()), MetricReduce::exact);
}

Tensor Step::randn(const Shape& shape) {
  ATH_CHECK(shape.rank() >= 1 && shape[0] == place_.samples,
            "randn: the first axis must be that of the batch's {} samples, but the shape is {}",
            place_.samples, shape);
  ATH_CHECK(!place_.may_be_captured,
            "randn: draws different numbers in each step, so the step must not be captured; override "
            "captured_as()");
  const auto minor = static_cast<std::uint64_t>(draws_++);
  // All validations draw the same numbers, different from those of any step.
  constexpr std::uint64_t kValidation = (std::uint64_t{1} << 40) - 1;
  const std::uint64_t major = place_.training ? static_cast<std::uint64_t>(place_.step) : kValidation;
  Shape all = shape;
  all[0] = place_.of_ranks;
  const NoGrad no_grad;
  const Tensor drawn = athanor::randn(all, {place_.seed, random_stream(RandomPurpose::task, major, minor)}, 0,
                                      1, place_.options);
  return place_.of_ranks == place_.samples ? drawn
                                           : contiguous(narrow(drawn, 0, place_.first, place_.samples));
}

Task::Task() = default;
Task::~Task() = default;

void Task::network(const std::string& name, nn::Module& module) {
  add(name, module);
  names_.push_back(name);
}

void Task::frozen(const std::string& name, nn::Module& module) {
  add(name, module);
  module.freeze();
}

void Task::add(const std::string& name, nn::Module& module) {
  ATH_CHECK(!only_, "task: the network without a name must be the only one, but '{}' follows", name);
  if (name.empty()) {
    ATH_CHECK(!all_, "task: several networks must have names, but one has none");
    only_ = &module;
  } else {
    if (!all_) all_ = std::make_unique<Networks>();
    all_->add(name, module);
  }
}

std::vector<Parameter> Task::parameters_of(const std::vector<std::string>& names) {
  std::vector<Parameter> all = of_networks(networks().parameters(), names);
  std::erase_if(all, [](const Parameter& one) { return !one.tensor.requires_grad(); });
  return all;
}

std::vector<NamedTensor> Task::buffers_of(const std::vector<std::string>& names) {
  std::vector<NamedTensor> all = of_networks(networks().buffers(), names);
  const std::vector<NamedTensor> frozen = networks().frozen_buffers();
  std::erase_if(all, [&](const NamedTensor& one) {
    return std::any_of(frozen.begin(), frozen.end(),
                       [&](const NamedTensor& other) { return other.tensor.same_as(one.tensor); });
  });
  return all;
}

std::vector<Parameter> Task::frozen_parameters() {
  std::vector<Parameter> all = networks().parameters();
  std::erase_if(all, [](const Parameter& one) { return one.tensor.requires_grad(); });
  return all;
}

std::vector<NamedTensor> Task::frozen_buffers() {
  return networks().frozen_buffers();
}

nn::Module& Task::networks() {
  ATH_CHECK(only_ || all_, "task: must have a network: call network(\"net\", net) in its constructor");
  return only_ ? *only_ : *all_;
}

}  // namespace athanor
