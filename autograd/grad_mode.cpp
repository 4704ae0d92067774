#include "autograd/grad_mode.h"

#include <utility>

namespace athanor {
namespace {

thread_local bool enabled = true;
thread_local bool inference = false;
thread_local bool repeating = false;

}  // namespace

bool grad_enabled() {
  return enabled;
}
bool inference_mode() {
  return inference;
}

bool recomputing() {
  return repeating;
}

Recomputing::Recomputing() : saved_(std::exchange(repeating, true)) {}
Recomputing::~Recomputing() {
  repeating = saved_;
}

NoGrad::NoGrad() : saved_(std::exchange(enabled, false)) {}
NoGrad::~NoGrad() {
  enabled = saved_;
}

EnableGrad::EnableGrad() : saved_(std::exchange(enabled, true)) {}
EnableGrad::~EnableGrad() {
  enabled = saved_;
}

InferenceMode::InferenceMode()
    : saved_enabled_(std::exchange(enabled, false)), saved_inference_(std::exchange(inference, true)) {}
InferenceMode::~InferenceMode() {
  enabled = saved_enabled_;
  inference = saved_inference_;
}

}  // namespace athanor
