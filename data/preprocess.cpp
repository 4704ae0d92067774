#include "data/preprocess.h"

#include <array>
#include <cmath>
#include <memory>

#include "data/in_memory.h"
#include "tensor/error.h"
#include "tensor/philox.h"

namespace athanor {

Normalization measure(const Dataset& data, std::int64_t most, bool skip_unreadable) {
  ATH_CHECK(data.size() > 0 && most > 0, "measure: there must be images, but got {} of {}", most,
            data.size());
  const ImageSpec& spec = data.spec();
  const auto channels = static_cast<std::size_t>(spec.channels);
  // Counting bytes keeps the sums exact, whatever the order.
  std::vector<std::array<std::int64_t, 256>> count(channels);
  std::vector<std::uint8_t> image(static_cast<std::size_t>(spec.bytes()));
  std::int64_t images = 0;
  // One drawn from each of as many stretches of equal length: every k-th would miss whole classes where files
  // take them in turns.
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

Preprocess::Preprocess(const ImageSpec& spec, const Normalization& normalization, DType dtype, Device device,
                       const Augment& augment, std::uint64_t seed)
    : spec_(spec), augment_(augment), seed_(seed) {
  const auto channels = static_cast<std::size_t>(spec.channels);
  ATH_CHECK(normalization.mean.size() == channels && normalization.stddev.size() == channels,
            "preprocess: {} channels need as many means and standard deviations, but got {} and {}", channels,
            normalization.mean.size(), normalization.stddev.size());
  ATH_CHECK(augment.pad >= 0 && augment.pad < std::min(spec.height, spec.width) && augment.cutout >= 0,
            "preprocess: padding must be in [0, {}) and cutout at least 0, but got {} and {}",
            std::min(spec.height, spec.width), augment.pad, augment.cutout);
  const ColourJitter& colour = augment.colour;
  for (const float amount : {colour.brightness, colour.contrast, colour.saturation, 4 * colour.hue}) {
    ATH_CHECK(amount >= 0 && amount <= 2 && (amount == 0 || channels == 3),
              "preprocess: colours must change by amounts in [0, 2] and a hue in [0, 0.5], and only of 3 "
              "channels, but got {}, {}, {} and {} for {}",
              colour.brightness, colour.contrast, colour.saturation, colour.hue, channels);
  }
  std::vector<double> values;
  for (std::size_t c = 0; c < channels; ++c) {
    for (int byte = 0; byte < 256; ++byte) {
      values.push_back((byte / 255.0 - normalization.mean[c]) / normalization.stddev[c]);
    }
  }
  const Tensor exact = Tensor::from(values, {spec.channels, 256});
  const Tensor rounded = Tensor::empty(exact.shape(), {dtype, kCpu});
  dispatch_floating(dtype, "preprocess", [&]<class T>() {
    T* to = rounded.data<T>();
    for (std::size_t i = 0; i < values.size(); ++i) to[i] = T(static_cast<Accumulate<T>>(values[i]));
  });
  table_ = rounded.to(device);
}

Tensor Preprocess::operator()(const Batch& batch, std::int64_t epoch, bool training) const {
  const Device device = table_.device();
  const Tensor images = batch.images.to(device), samples = batch.samples.to(device);
  const Tensor rows = batch.rows.defined() ? batch.rows.to(device) : Tensor();
  const Shape shape{batch.size(), spec_.height, spec_.width, spec_.channels};
  Shape all = shape;
  all[0] = rows.defined() ? images.shape()[0] : batch.size();
  ATH_CHECK(images.shape() == all, "preprocess: images must be {}, but got {}", all, images.shape());
  const Tensor y = Tensor::empty(shape, table_.options());
  if (batch.size() == 0) return y;
  on_device(device, [&](auto& context) {
    kernels::augment(context, training ? augment_ : Augment{}, seed_, epoch, images, rows, samples, table_,
                     y);
  });
  return y;
}

Batch Preprocess::prepare(const Batch& batch, std::int64_t epoch, bool training) const {
  return {.images = (*this)(batch, epoch, training),
          .labels = batch.labels.to(table_.device()),
          .samples = batch.samples,
          .rows = {}};
}

}  // namespace athanor
