#include "data/mix.h"

#include <algorithm>
#include <cmath>
#include <string_view>

#include "data/label_kind.h"
#include "kernels/math.h"
#include "kernels/on_device.h"
#include "tensor/base/error.h"

namespace athanor {
namespace {

struct Uniforms {
  double first, second;  // in (0, 1)
};

// draw_mixing() uses block 0; attempts at a share use the following ones.
Uniforms uniforms(const RandomKey& key, std::uint64_t block) {
  const auto uniform = [&](std::uint64_t half) {
    return (static_cast<double>(philox_word64(key, 2 * block + half) >> 11) + 0.5) * 0x1p-53;
  };
  return {uniform(0), uniform(1)};
}

bool has_field(const Batch& batch, std::string_view name) {
  return batch.fields && std::ranges::find(*batch.fields, name, &FieldSpec::name) != batch.fields->end();
}

}  // namespace

RandomKey mix_key(std::uint64_t seed, std::int64_t step, std::int64_t pass) {
  return {seed, random_stream(RandomPurpose::mix, static_cast<std::uint64_t>(step),
                              static_cast<std::uint64_t>(pass))};
}

double draw_beta(double alpha, const RandomKey& key) {
  ATH_CHECK(alpha > 0 && std::isfinite(alpha), "draw_beta: alpha must be > 0, but got {}", alpha);
  const double root = std::sqrt(alpha);
  for (std::uint64_t attempt = 1; attempt <= 256; ++attempt) {  // at least one in two is accepted
    const auto [u, v] = uniforms(key, attempt);
    if (alpha <= 1) {  // x = u^(1 / alpha), y = v^(1 / alpha); accepts x + y <= 1: x / (x + y)
      const double x = math::log(u) / alpha, y = math::log(v) / alpha;
      if (math::exp(x) + math::exp(y) <= 1) return 1 / (1 + math::exp(y - x));
      continue;
    }
    const double odds = math::log(u / (1 - u)) / root, w = alpha * math::exp(odds);
    const double bound = (alpha + root) * odds - 2 * math::log(2.0);
    if (bound + 2 * alpha * math::log(2 * alpha / (alpha + w)) >= math::log(u * u * v))
      return w / (alpha + w);
  }
  return 0.5;
}

Mixing draw_mixing(const Augment& augment, std::int64_t height, std::int64_t width, const RandomKey& key) {
  const PhiloxBlock random = philox(key, 0);
  const bool both = augment.mixup > 0 && augment.cutmix > 0;
  Mixing how;
  how.cuts = both ? (random.word[0] & 1) != 0 : augment.cutmix > 0;
  how.share = draw_beta(how.cuts ? augment.cutmix : augment.mixup, key);
  if (!how.cuts) return how;
  const double side = std::sqrt(1 - how.share);
  const auto place = [side](std::uint32_t word, std::int64_t whole, std::int64_t& start,
                            std::int64_t& length) {
    const std::int64_t half = static_cast<std::int64_t>(side * static_cast<double>(whole)) / 2;
    const std::int64_t middle = kernels::below(word, whole);
    start = std::max<std::int64_t>(middle - half, 0);
    length = std::min(middle + half, whole) - start;
  };
  place(random.word[1], height, how.top, how.height);
  place(random.word[2], width, how.left, how.width);
  how.share = 1 - static_cast<double>(how.height * how.width) / static_cast<double>(height * width);
  return how;
}

void mix(Batch& batch, const Augment& augment, const RandomKey& key) {
  if (!augment.mixes()) return;
  const bool has_label = batch.labels.defined();
  ATH_CHECK((has_label || has_field(batch, kLabelsField)) && batch.views == 1,
            "mix: mixed samples must have a label and one view, but have {} and {}",
            has_label ? "a label" : "none", batch.views);
  const Shape& shape = batch.images.shape();
  const Mixing how = draw_mixing(augment, shape[1], shape[2], key);
  // Without a label, tasks know the partner by its row.
  const Tensor& labels = has_label ? batch.labels : batch.samples;
  const Tensor of_partners = Tensor::empty(labels.shape(), labels.options());
  batch.own_share = how.share;
  on_device(batch.images.device(),
            [&](auto& context) { kernels::mix(context, how, batch.images, labels, of_partners); });
  if (has_label) batch.partner_labels = of_partners;
}

}  // namespace athanor
