#include "autograd/engine.h"
#include "autograd/loss.h"
#include "bench/support/bench.h"
#include "nn/models/model.h"

// What the allocator's cache is worth: the same work with the cache left alone, and emptied after each run.
// The numbers of docs/emptying_the_cache.md.

namespace athanor::bench {
namespace {

void add_both(const char* op, const Shape& shape, const Work& work,
              const std::function<std::function<void()>()>& make) {
  add({op, "step", DType::f32, shape_name(shape), "kept"}, work, [=] { return Prepared{make()}; });
  add({op, "step", DType::f32, shape_name(shape), "emptied"}, work, [=] {
    return Prepared{[run = make()] {
      run();
      allocator_of(kCpu).trim();
    }};
  });
}

}  // namespace

void register_all() {
  // A tensor is made, written and dropped.
  for (const std::int64_t mib : {4, 64, 256}) {
    const Shape shape{mib << 18};
    add_both("make", shape, {.bytes = static_cast<double>(mib << 20)},
             [=] { return [=] { Tensor::zeros(shape); }; });
  }
  // A training step without the update: activations are made going forward and dropped going back.
  const Shape images{32, 32, 32, 3};
  add_both("resnet20", images, {}, [=] {
    const std::shared_ptr<nn::Module> model =
        nn::make_model("resnet20", {.classes = 10, .in_channels = 3, .image_size = 32}, 0);
    const Tensor x = filled(images, DType::f32),
                 target = Tensor::from(std::vector<std::int64_t>(32, 3), {32});
    return [=] {
      for (const Parameter& parameter : model->parameters()) zero_grad(parameter.tensor);
      backward(cross_entropy(model->forward(x), target));
    };
  });
}

}  // namespace athanor::bench
