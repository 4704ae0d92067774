#include "trainer/task.h"

#include <algorithm>
#include <vector>

#include "tensor/error.h"

namespace athanor {

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

Task::Task() = default;
Task::~Task() = default;

void Task::network(const std::string& name, nn::Module& module) {
  ATH_CHECK(!only_, "task: the network without a name must be the only one, but '{}' follows", name);
  if (name.empty()) {
    ATH_CHECK(!all_, "task: several networks must have names, but one has none");
    only_ = &module;
    return;
  }
  if (!all_) all_ = std::make_unique<Networks>();
  all_->add(name, module);
}

nn::Module& Task::networks() {
  ATH_CHECK(only_ || all_, "task: must have a network: call network(\"net\", net) in its constructor");
  return only_ ? *only_ : *all_;
}

}  // namespace athanor
