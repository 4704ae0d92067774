#include "trainer/task.h"

#include <algorithm>
#include <vector>

#include "tensor/error.h"

namespace athanor {
namespace {

/// Those whose name begins with one of the networks'.
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

/// Several networks under their names. Nobody calls it as a whole.
class Task::Networks final : public nn::Module {
 public:
  Tensor forward(const Tensor&) override {
    detail::fail<>("task: its networks are called one by one, not as a whole");
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

void Step::minimize(std::string_view optimizer, const Tensor& loss) {
  ATH_CHECK(minimizer_, "minimize: must be called in a training step, but '{}' is in a validation step",
            optimizer);
  minimizer_->minimize(optimizer, loss);
}

Task::Task() = default;
Task::~Task() = default;

void Task::network(const std::string& name, nn::Module& module) {
  ATH_CHECK(!only_, "task: the network without a name must be the only one, but '{}' follows", name);
  if (name.empty()) {
    ATH_CHECK(!all_, "task: several networks must have names, but one has none");
    only_ = &module;
  } else {
    if (!all_) all_ = std::make_unique<Networks>();
    all_->add(name, module);
  }
  names_.push_back(name);
}

std::vector<Parameter> Task::parameters_of(const std::vector<std::string>& names) {
  return of_networks(networks().parameters(), names);
}

std::vector<NamedTensor> Task::buffers_of(const std::vector<std::string>& names) {
  return of_networks(networks().buffers(), names);
}

nn::Module& Task::networks() {
  ATH_CHECK(only_ || all_, "task: must have a network: call network(\"net\", net) in its constructor");
  return only_ ? *only_ : *all_;
}

}  // namespace athanor
