#include "trainer/outputs.h"

#include "autograd/creation.h"
#include "autograd/shape.h"
#include "data/label_kind.h"
#include "tensor/base/error.h"
#include "trainer/mixed_labels.h"

namespace athanor {

Tensor outputs_of(nn::Module& model, const Batch& batch, std::int64_t count,
                  const TestTimeAugmentation& views) {
  const Tensor outputs = views(model, batch["image"]);
  const Shape wanted{batch.size(), count};
  ATH_CHECK(outputs.shape() == wanted, "trainer: the model must return {}, but got {}", wanted,
            outputs.shape());
  return outputs.dtype() == DType::f64 ? outputs : cast(outputs, DType::f32);
}

Tensor targets_of(const Batch& batch, const Tensor& outputs) {
  const Tensor own = cast(batch[kLabelsField], outputs.dtype());
  if (batch.own_share == 1) return own;
  const auto last = static_cast<double>(batch.size() - 1);
  const Tensor partners = arange(last, -1, -1, {DType::i64, own.device()});
  return mix_by_share(batch, own, index_select(own, 0, partners));
}

}  // namespace athanor
