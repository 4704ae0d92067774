#include "trainer/plan/step_places.h"

#include "trainer/trainer.h"

namespace athanor {

StepPlaces::Place StepPlaces::place_of(std::string_view kernel) const {
  // Between the closures of a backward pass, the engine adds gradients up.
  const bool adds = kernel == "add_into" || kernel == "copy";
  const char* const layer = open_ > 0 || (backward_ && adds) ? layer_
                            : backward_                      ? nullptr
                                                             : LayerScope::innermost();
  const bool updates = backward_ && open_ == 0 && !adds;
  return {layer ? layer : "", updates ? "update" : backward_ ? "backward" : "forward"};
}

void StepPlaces::on_step_begin(Trainer& trainer, const StepInfo& info) {
  listens_ = listens_to(info.attempted);
  backward_ = false;
  open_ = 0;
  if (listens_ && !networks_) {
    networks_ = &trainer.networks();
    networks_->name_layers(true);
  }
  if (listens_) observing_.emplace(static_cast<OpObserver&>(*this));
}

void StepPlaces::backward_began(const char*, const char* layer) {
  backward_ = true;
  ++open_;
  layer_ = layer;
}

void StepPlaces::stop() {
  listens_ = false;
  observing_.reset();
}

void StepPlaces::stop_naming() {
  stop();
  if (networks_) networks_->name_layers(false);
  networks_ = nullptr;
}

}  // namespace athanor
