#include "data/preprocess.h"

#include <array>
#include <cmath>
#include <numeric>

#include "kernels/on_device.h"
#include "kernels/rand_augment.h"
#include "tensor/base/error.h"
#include "tensor/base/trace.h"
#include "tensor/philox.h"

namespace athanor {

Normalization measure(const Dataset& data, std::int64_t most, bool skip_unreadable) {
  ATH_CHECK(data.size() > 0 && most > 0, "measure: needs at least one image, but got {} of {}", most,
            data.size());
  const ImageSpec& spec = data.spec();
  const auto channels = static_cast<std::size_t>(spec.channels);
  // Counting bytes keeps the sums exact in any order.
  std::vector<std::array<std::int64_t, 256>> count(channels);
  std::vector<std::uint8_t> image(static_cast<std::size_t>(spec.bytes()));
  std::int64_t images = 0;
  // Draws one image from each of equally long stretches: every k-th could miss whole classes if files cycle
  // through them.
  const std::int64_t stretches = std::min(most, data.size());
  for (std::int64_t i = 0; i < stretches; ++i) {
    const std::int64_t first = i * data.size() / stretches, end = (i + 1) * data.size() / stretches;
    const std::uint64_t word =
        philox_word64({0, random_stream(RandomPurpose::order, 0, 2)}, static_cast<std::uint64_t>(i));
    try {
      data.read(
          first + static_cast<std::int64_t>(random_below(word, static_cast<std::uint64_t>(end - first))),
          image);
    } catch (const IoError&) {
      if (!skip_unreadable) throw;
      continue;
    }
    ++images;
    for (std::size_t p = 0; p < image.size(); p += channels) {
      for (std::size_t c = 0; c < channels; ++c) ++count[c][image[p + c]];
    }
  }
  if (images == 0) detail::fail<IoError>("measure: none of the images can be read");
  Normalization result;
  const auto pixels = static_cast<double>(images * spec.height * spec.width);
  for (const auto& histogram : count) {
    double sum = 0, squares = 0;
    for (std::size_t v = 0; v < histogram.size(); ++v) {
      const auto value = static_cast<double>(v), times = static_cast<double>(histogram[v]);
      sum += value * times;
      squares += value * value * times;
    }
    const double mean = sum / pixels, variance = squares / pixels - mean * mean;
    result.mean.push_back(mean / 255);
    result.stddev.push_back(variance > 1e-6 ? std::sqrt(variance) / 255 : 1.0);
  }
  return result;
}

namespace {

/// The mapping of bytes, [C, 256]: (byte / 255 - mean) / stddev.
Tensor make_table(const Normalization& normalization, DType dtype, Device device) {
  std::vector<double> values;
  for (std::size_t c = 0; c < normalization.mean.size(); ++c) {
    for (int byte = 0; byte < 256; ++byte) {
      values.push_back((byte / 255.0 - normalization.mean[c]) / normalization.stddev[c]);
    }
  }
  const Tensor rounded = Tensor::empty({std::ssize(values) / 256, 256}, {dtype, kCpu});
  dispatch_floating(dtype, "preprocess", [&]<class T>() {
    T* to = rounded.data<T>();
    for (std::size_t i = 0; i < values.size(); ++i) to[i] = T(static_cast<Accumulate<T>>(values[i]));
  });
  return rounded.to(device);
}

/// In their order.
std::vector<kernels::RandPass> passes_of(const Augment& augment) {
  using Kind = kernels::RandPass::Kind;
  std::vector<kernels::RandPass> passes;
  for (int number = 0; augment.rand_augment && number < augment.rand_augment->operations; ++number)
    passes.push_back({.kind = Kind::rand_augment, .how = *augment.rand_augment, .number = number});
  if (augment.trivial_augment) passes.push_back({.kind = Kind::trivial_augment});
  if (augment.rotation > 0) passes.push_back({.kind = Kind::rotation, .amount = augment.rotation});
  if (augment.blur > 0) passes.push_back({.kind = Kind::blur, .amount = augment.blur});
  return passes;
}

/// That read images as grey or RGB; null: there is none.
const char* name_of_pass(const Augment& augment) {
  return augment.rand_augment      ? "rand-augment"
         : augment.trivial_augment ? "trivial-augment"
         : augment.rotation > 0    ? "rotation"
         : augment.blur > 0        ? "blur"
                                   : nullptr;
}

void check_augment(const Augment& augment, const ImageSpec& spec) {
  ATH_CHECK(augment.pad >= 0 && augment.pad < std::min(spec.height, spec.width) && augment.cutout >= 0,
            "preprocess: padding must be in [0, {}) and cutout at least 0, but got {} and {}",
            std::min(spec.height, spec.width), augment.pad, augment.cutout);
  const ColourJitter& colour = augment.colour;
  for (const float amount : {colour.brightness, colour.contrast, colour.saturation, 4 * colour.hue}) {
    ATH_CHECK(amount >= 0 && amount <= 2,
              "preprocess: color-jitter must have brightness, contrast and saturation in [0, 2] and hue in "
              "[0, 0.5], but got {}, {}, {} "
              "and {}",
              colour.brightness, colour.contrast, colour.saturation, colour.hue);
  }
  ATH_CHECK(
      !colour.any() || spec.channels == 3,
      "preprocess: images must have 3 channels for color-jitter, but have {}; leave it out of --augment",
      spec.channels);
  if (const auto& rand = augment.rand_augment) {
    ATH_CHECK(
        rand->operations >= 1 && rand->operations <= 16 && rand->magnitude >= 0 &&
            rand->magnitude <= kernels::kMaxMagnitude,
        "preprocess: rand-augment must have 1 to 16 operations and a magnitude in [0, {}], but got {} and {}",
        kernels::kMaxMagnitude, rand->operations, rand->magnitude);
  }
  if (const char* const name = name_of_pass(augment)) {
    ATH_CHECK(spec.channels == 1 || spec.channels == 3,
              "preprocess: images must have 1 or 3 channels for {}, but have {}; leave it out of --augment",
              name, spec.channels);
  }
  ATH_CHECK(augment.rotation >= 0 && augment.rotation <= 180 && augment.blur >= 0 && augment.blur <= 1,
            "preprocess: rotation must be in [0, 180] degrees and blur a probability, but got {} and {}",
            augment.rotation, augment.blur);
  ATH_CHECK(augment.random_erasing >= 0 && augment.random_erasing <= 1 &&
                (augment.random_erasing == 0 || augment.cutout == 0),
            "preprocess: random erasing must have a probability in [0, 1], and 0 with cutout, but got {}",
            augment.random_erasing);
  if (!augment.resized_crop) return;
  kernels::check(*augment.resized_crop);
  constexpr std::int64_t kMaxSide = 1 << 14;  // kernels::Tap
  ATH_CHECK(spec.height <= kMaxSide && spec.width <= kMaxSide,
            "preprocess: images must have sides of at most {} for a resized crop, but have {}x{}", kMaxSide,
            spec.height, spec.width);
  ATH_CHECK(augment.pad == 0, "preprocess: pad must be 0 with a resized crop, but is {}", augment.pad);
}

}  // namespace

void check_fields(const Augment& augment, const std::vector<FieldSpec>& fields) {
  for (const FieldSpec& field : fields) {
    const bool follows = field.kind == FieldKind::values || field.kind == FieldKind::picture;
    Augment moves = augment;
    moves.blur = 0;
    const char* const name = name_of_pass(moves);
    ATH_CHECK(
        !name || follows,
        "preprocess: {} must not be used with fields that refer to pixel positions, but samples have the "
        "field '{}' ({})",
        name, field.name, name_of(field.kind));
  }
}

Preprocess::Preprocess(const ImageSpec& spec, const Normalization& normalization, DType dtype, Device device,
                       const Augment& augment, std::uint64_t seed, std::int64_t views)
    : spec_(spec), augment_(augment), seed_(seed), views_(views) {
  const auto channels = static_cast<std::size_t>(spec.channels);
  ATH_CHECK(normalization.mean.size() == channels && normalization.stddev.size() == channels,
            "preprocess: {} channels need one mean and one standard deviation each, but got {} and {}",
            channels, normalization.mean.size(), normalization.stddev.size());
  ATH_CHECK(views >= 1 && views <= 256, "preprocess: views must be in [1, 256], but got {}", views);
  check_augment(augment, spec);
  ATH_CHECK(views == 1 || !augment.crops_when_decoded || !augment.resized_crop,
            "preprocess: views must be 1 if the data set crops while it decodes, because all views get the "
            "same crop, but are {}",
            views);
  if (augment_.crops_when_decoded) augment_.resized_crop.reset();
  table_ = make_table(normalization, dtype, device);
  target_table_ = make_table({std::vector<double>(4, 0.0), std::vector<double>(4, 1.0)}, dtype, device);
  std::vector<std::uint8_t> classes(256);
  std::iota(classes.begin(), classes.end(), std::uint8_t{0});
  mask_table_ = Tensor::from(classes, {1, 256}).to(device);
}

template <class Make>
Tensor Preprocess::in_views(const Shape& one, DType dtype, kernels::AugmentKey key, const Make& make) const {
  Shape all = one;
  all[0] *= views_;
  const Tensor y = Tensor::empty(all, {dtype, table_.device()});
  for (; key.view < views_ && y.numel() > 0; ++key.view) {
    make(key, views_ == 1 ? y : y.view_as_strided(one, contiguous_strides(one), key.view * one.numel()));
  }
  return y;
}

Tensor Preprocess::changed(const Tensor& from, const Tensor& rows, const Tensor& samples, const Tensor& table,
                           const Augment& augment, const kernels::AugmentKey& of_pass) const {
  const Shape one{samples.shape()[0], spec_.height, spec_.width, from.shape()[3]};
  return in_views(one, table.dtype(), of_pass, [&](const kernels::AugmentKey& key, const Tensor& y) {
    Tensor places = rows;
    const Tensor bytes = with_passes(key, augment, from, places, samples);
    on_device(y.device(), [&](auto& context) {
      kernels::augment(context, augment, key, bytes, places, samples, table, y);
    });
  });
}

Tensor Preprocess::with_passes(const kernels::AugmentKey& key, const Augment& augment, Tensor from,
                               Tensor& rows, const Tensor& samples) const {
  const Shape one{samples.shape()[0], spec_.height, spec_.width, from.shape()[3]};
  for (const kernels::RandPass& pass : passes_of(augment)) {
    const Tensor next = Tensor::empty(one, {DType::u8, table_.device()});
    on_device(next.device(),
              [&](auto& context) { kernels::rand_augment(context, pass, key, from, rows, samples, next); });
    from = next;
    rows = {};
  }
  return from;
}

kernels::AugmentKey Preprocess::key_of(const Batch& batch, std::int64_t epoch) const {
  return {seed_, epoch, 0, batch.epoch.defined() ? batch.epoch.data<std::int64_t>() : nullptr};
}

Tensor Preprocess::operator()(const Batch& batch, std::int64_t epoch, bool training) const {
  const Device device = table_.device();
  const Tensor images = batch.images.to(device), samples = batch.samples.to(device);
  const Tensor rows = batch.rows.defined() ? batch.rows.to(device) : Tensor();
  const Shape all{rows.defined() ? images.shape()[0] : batch.size(), spec_.height, spec_.width,
                  spec_.channels};
  ATH_CHECK(images.shape() == all, "preprocess: images must be {}, but got {}", all, images.shape());
  return changed(images, rows, samples, table_, training ? augment_ : Augment{}, key_of(batch, epoch));
}

Tensor Preprocess::prepared(const FieldSpec& field, const Tensor& from, const Tensor& samples,
                            const Augment& augment, const kernels::AugmentKey& of_pass) const {
  Augment geometry = augment;
  geometry.cutout = 0;
  geometry.random_erasing = 0;
  geometry.colour = {};
  geometry.blur = 0;
  switch (field.kind) {
    case FieldKind::values: return from;
    case FieldKind::picture: return changed(from, {}, samples, table_, augment, of_pass);
    case FieldKind::target: return changed(from, {}, samples, target_table_, geometry, of_pass);
    case FieldKind::mask: {
      const auto with = [](const Tensor& x, const Shape& shape) {
        return x.view_as_strided(shape, contiguous_strides(shape), 0);
      };
      const std::int64_t n = from.shape()[0], h = spec_.height, w = spec_.width;
      const Tensor y = changed(with(from, {n, h, w, 1}), {}, samples, mask_table_, geometry, of_pass);
      return with(y, {views_ * n, h, w});
    }
    case FieldKind::boxes:
    case FieldKind::points: break;
  }
  return in_views(from.shape(), DType::f32, of_pass, [&](const kernels::AugmentKey& key, const Tensor& y) {
    on_device(y.device(), [&](auto& context) {
      kernels::augment_points(context, geometry, key, spec_.height, spec_.width, samples, from, y);
    });
  });
}

Batch Preprocess::prepare(const Batch& batch, std::int64_t epoch, bool training) const {
  const TraceScope traced("prepare", "copy", batch.id);
  const Device device = table_.device();
  if (training && batch.fields) check_fields(augment_, *batch.fields);
  Batch ready{.images = (*this)(batch, epoch, training),
              .labels = batch.labels.defined() ? batch.labels.to(device) : Tensor(),
              .samples = batch.samples,
              .rows = {},
              .id = batch.id,
              .epoch = batch.epoch,
              .views = views_,
              .fields = batch.fields};
  for (std::size_t i = 0; batch.fields && i < batch.fields->size(); ++i) {
    ready.more[i] = prepared((*batch.fields)[i], batch.more[i].to(device), batch.samples.to(device),
                             training ? augment_ : Augment{}, key_of(batch, epoch));
  }
  return ready;
}

}  // namespace athanor
