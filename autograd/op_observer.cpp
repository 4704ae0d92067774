#include "autograd/op_observer.h"

namespace athanor {

constinit thread_local ObserveScope* ObserveScope::first_ = nullptr;
constinit thread_local const char* LayerScope::innermost_ = nullptr;

void LayerScope::begin() {
  outer_ = std::exchange(innermost_, layer_);
  ObserveScope::for_each([&](OpObserver& observer) { observer.layer_began(layer_); });
}

void LayerScope::end() {
  innermost_ = outer_;
  ObserveScope::for_each([&](OpObserver& observer) { observer.layer_ended(layer_); });
}

}  // namespace athanor
