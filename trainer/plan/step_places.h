#pragma once

#include <optional>
#include <string_view>

#include "autograd/op_observer.h"
#include "trainer/callback.h"

namespace athanor {

namespace nn {
class Module;
}

/// Knows which layer and pass of a step the training thread works at: for callbacks that attribute kernels to
/// them, by an account or by a clock.
class StepPlaces : public Callback, private OpObserver {
 public:
  ~StepPlaces() override { stop_naming(); }

  struct Place {
    const char* layer;  ///< "layer1.0.conv1", as long as the fit lasts; "": none
    const char* pass;   ///< "forward", "backward" or "update"
  };
  /// Whether the current step is one that it listens to.
  bool listens() const { return listens_; }
  /// Where a kernel of that name belongs that is launched now.
  Place place_of(std::string_view kernel) const;

  void on_step_begin(Trainer& trainer, const StepInfo& info) override;
  void on_step_end(Trainer&, const StepInfo&) override { stop(); }
  void on_train_end(Trainer&) override { stop_naming(); }
  void on_exception(Trainer&, const std::exception&) override { stop_naming(); }
  bool reads_weights() const override { return false; }

 protected:
  /// Whether to listen to the step that begins; `attempted`: steps before it.
  virtual bool listens_to(std::int64_t attempted) const = 0;

 private:
  void backward_began(const char* op, const char* layer) override;
  void backward_ended(const char*, const char*, const Tensor&, std::span<const Tensor>) override { --open_; }

  void stop();
  void stop_naming();

  bool listens_ = false, backward_ = false;
  int open_ = 0;  // closures of the backward pass that are running
  const char* layer_ = nullptr;
  nn::Module* networks_ = nullptr;         // while their layers are named
  std::optional<ObserveScope> observing_;  // while it listens
};

}  // namespace athanor
