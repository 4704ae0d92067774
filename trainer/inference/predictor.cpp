#include "trainer/inference/predictor.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <mutex>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "autograd/grad_mode.h"
#include "autograd/shape.h"
#include "autograd/softmax.h"
#include "data/image/transform.h"
#include "data/preprocess.h"
#include "kernels/cpu/borrowed_context.h"
#include "nn/models/model.h"
#include "tensor/error.h"
#include "trainer/checkpoints/run_folder.h"
#include "trainer/inference/batch_parts.h"

namespace athanor {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kLeastInParts = 8;        // images; fewer are computed together
constexpr std::int64_t kKeptPixels = 4'000'000;  // memory to decode a larger image is freed after it

/// Working state of one call.
struct CallState {
  CpuContext context;
  std::unique_ptr<ImageReader> reader;
  std::vector<std::uint8_t> rgb;  // of an image to be converted to grey
};

/// A pool that grows to the number of concurrent calls.
class Workplaces {
 public:
  std::unique_ptr<CallState> take() {
    const std::lock_guard lock(mutex_);
    if (!free_.empty()) {
      std::unique_ptr<CallState> place = std::move(free_.back());
      free_.pop_back();
      return place;
    }
    free_.reserve(static_cast<std::size_t>(++made_));
    return std::make_unique<CallState>();
  }
  void give_back(std::unique_ptr<CallState> place) {
    const std::lock_guard lock(mutex_);
    free_.push_back(std::move(place));
  }

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<CallState>> free_;  // last in, first out: its memory is warm
  int made_ = 0;
};

/// Borrows one for a scope.
class Lease {
 public:
  explicit Lease(Workplaces& all)
      : all_(all), place_(all.take()), borrowed_(std::in_place, place_->context) {}
  ~Lease() {
    borrowed_.reset();
    const ImageSize size = place_->reader ? place_->reader->stored_size() : ImageSize();
    if (size.height * size.width > kKeptPixels) place_->reader.reset();
    all_.give_back(std::move(place_));
  }
  Lease(const Lease&) = delete;
  Lease& operator=(const Lease&) = delete;
  CallState& operator*() const { return *place_; }

 private:
  Workplaces& all_;
  std::unique_ptr<CallState> place_;
  std::optional<BorrowedContext> borrowed_;
};

Device device_of(const nn::Module& network) {
  const std::vector<Parameter> parameters = network.parameters();
  return parameters.empty() ? kCpu : parameters.front().tensor.device();
}

std::unique_ptr<nn::Module> load_network(const fs::path& path, const ModelFile& file, Device device) {
  const ModelInfo& info = file.info;
  const std::vector<std::string> known = nn::model_names();
  const bool is_known = std::find(known.begin(), known.end(), info.model) != known.end();
  ATH_CHECK(is_known && info.classifies,
            "predict: {} must hold a classifier that --model names, but holds {} of {}; use it with its own "
            "program",
            path.string(), info.model.empty() ? "a network" : info.model, info.program);
  const ImageSpec& images = info.images;
  try {
    auto network = nn::make_model(info.model, {images.classes, images.channels, images.height});
    network->load_state_dict(file.weights);
    if (!device.is_cpu()) network->to(device);
    return network;
  } catch (const ArgumentError& error) {
    detail::fail<IoError>("predict: {} cannot be used: {}", path.string(), error.what());
  }
}

/// ITU-R BT.601.
void to_luma(std::span<const std::uint8_t> rgb, std::span<std::uint8_t> grey) {
  for (std::size_t i = 0; i < grey.size(); ++i) {
    const int luma = 299 * rgb[3 * i] + 587 * rgb[3 * i + 1] + 114 * rgb[3 * i + 2];
    grey[i] = static_cast<std::uint8_t>((luma + 500) / 1000);
  }
}

/// The k largest of each row of [N, C] f32: NaN is the largest; the first of equals comes first.
Predictions largest(const Tensor& rows, std::int64_t k) {
  const std::int64_t n = rows.dim(0), all = rows.dim(1);
  const Predictions found{Tensor::empty({n, k}, {DType::i64}), Tensor::empty({n, k})};
  const Tensor order = Tensor::empty({all}, {DType::i64});
  std::int64_t* const first = order.data<std::int64_t>();
  for (std::int64_t i = 0; i < n; ++i) {
    const float* const row = rows.data<float>() + i * all;
    std::iota(first, first + all, std::int64_t{0});
    std::partial_sort(first, first + k, first + all, [row](std::int64_t a, std::int64_t b) {
      const bool a_nan = std::isnan(row[a]), b_nan = std::isnan(row[b]);
      if (a_nan != b_nan) return a_nan;
      return a_nan || row[a] == row[b] ? a < b : row[a] > row[b];
    });
    for (std::int64_t j = 0; j < k; ++j) {
      found.classes.data<std::int64_t>()[i * k + j] = first[j];
      found.probabilities.data<float>()[i * k + j] = row[first[j]];
    }
  }
  return found;
}

}  // namespace

struct Predictor::Impl {
  ModelInfo info;
  std::unique_ptr<nn::Module> network;
  Device device;
  Preprocess preprocess;
  ImageTransform transform;
  mutable Workplaces places;
  mutable std::once_flag measured;
  mutable PassBytes pass;

  Impl(std::unique_ptr<nn::Module> module, ModelInfo about)
      : info(std::move(about)),
        network(std::move(module)),
        device(device_of(*network)),
        preprocess(info.images, info.pixels, DType::f32, device),
        transform{
            .height = info.images.height, .width = info.images.width, .shorter_side = info.shorter_side} {
    network->to(DType::f32);
    network->pack_weights();
  }

  void decode(CallState& place, const StoredSample& sample, std::span<std::uint8_t> pixels) const;
  void decode_file(CallState& place, std::span<const std::byte> file, std::span<std::uint8_t> pixels) const;
  Tensor resized(CallState& place, const Tensor& images) const;
  Tensor normalised(const Tensor& images) const;
  Tensor run(const Tensor& images) const;
  std::int64_t images_at_a_time(std::int64_t batch) const;
  Tensor run_in_parts(const Tensor& images) const;
  Tensor logits(CallState& place, const Tensor& images) const;
  Predictions predict(CallState& place, const Tensor& images, std::int64_t top) const;
};

/// Decodes an image of any size with 1 or 3 channels to `pixels` of the model's size and channels.
void Predictor::Impl::decode(CallState& place, const StoredSample& sample,
                             std::span<std::uint8_t> pixels) const {
  const bool raw = sample.codec == Codec::raw;
  const bool grey = info.images.channels == 1 && (!raw || sample.channels == 3);
  if (grey) place.rgb.resize(pixels.size() * 3);
  if (!place.reader) place.reader = std::make_unique<ImageReader>();
  place.reader->read(sample, transform, {}, grey ? 3 : info.images.channels,
                     grey ? std::span(place.rgb) : pixels);
  if (grey) to_luma(place.rgb, pixels);
}

void Predictor::Impl::decode_file(CallState& place, std::span<const std::byte> file,
                                  std::span<std::uint8_t> pixels) const {
  const std::int64_t channels = info.images.channels;
  ATH_CHECK(channels == 1 || channels == 3,
            "predict: the model must take images of 1 or 3 channels, but takes {}", channels);
  ATH_CHECK(std::ssize(pixels) == info.images.bytes(), "predict: the buffer must hold {} bytes, but holds {}",
            info.images.bytes(), pixels.size());
  decode(place, {.bytes = file, .codec = Codec::jpeg}, pixels);  // or another format: first bytes decide
}

Tensor Predictor::Impl::resized(CallState& place, const Tensor& images) const {
  const ImageSpec& spec = info.images;
  const std::int64_t n = images.dim(0), h = images.dim(1), w = images.dim(2), c = images.dim(3);
  const Tensor all = Tensor::empty({n, spec.height, spec.width, spec.channels}, {DType::u8});
  for (std::int64_t i = 0; i < n; ++i) {
    const StoredSample sample{
        .bytes = {images.raw_data() + i * h * w * c, static_cast<std::size_t>(h * w * c)},
        .height = h,
        .width = w,
        .channels = c};
    decode(place, sample,
           {all.data<std::uint8_t>() + i * spec.bytes(), static_cast<std::size_t>(spec.bytes())});
  }
  return all;
}

/// Images as the network reads them.
Tensor Predictor::Impl::normalised(const Tensor& images) const {
  if (images.dtype() == DType::f32) return images.to(device);
  Batch batch;
  batch.images = images;
  batch.samples = Tensor::zeros({images.dim(0)}, {DType::i64});
  return preprocess(batch, 0, false);
}

/// Tags the network's intermediate tensors.
Tensor Predictor::Impl::run(const Tensor& images) const {
  const Tensor x = normalised(images);
  const AllocTag tag("activations");
  return (*network)(x);
}

std::int64_t Predictor::Impl::images_at_a_time(std::int64_t batch) const {
  if (batch < kLeastInParts || !device.is_cpu()) return batch;
  std::call_once(measured, [this] { pass = measure_pass(*network, info.images); });
  return athanor::images_at_a_time(pass, batch, cpu_context().threads());
}

Tensor Predictor::Impl::run_in_parts(const Tensor& images) const {
  const std::int64_t batch = images.dim(0), part = images_at_a_time(batch);
  const InferenceMode inference;
  if (part == batch) return run(images);
  Tensor all;
  for (std::int64_t first = 0; first < batch; first += part) {
    const std::int64_t count = std::min(part, batch - first);
    const Tensor some = contiguous(run(narrow(images, 0, first, count)));
    if (!all.defined()) {
      Shape shape = some.shape();
      shape[0] = batch;
      all = Tensor::empty(shape);
    }
    std::memcpy(
        all.raw_data() + static_cast<std::size_t>(first) * some.bytes() / static_cast<std::size_t>(count),
        some.raw_data(), some.bytes());
  }
  return all;
}

Tensor Predictor::Impl::logits(CallState& place, const Tensor& images) const {
  const ImageSpec& spec = info.images;
  ATH_CHECK(images.defined() && images.rank() == 4 && images.numel() > 0 && images.is_contiguous() &&
                (images.dtype() == DType::u8 || images.dtype() == DType::f32),
            "predict: images must be dense u8 or f32 [N, H, W, C], but got {}",
            images.defined() ? fmt::format("{} {}", images.dtype(), images.shape()) : "an undefined tensor");
  const Shape wanted{images.dim(0), spec.height, spec.width, spec.channels};
  if (images.dtype() == DType::f32) {
    ATH_CHECK(images.shape() == wanted, "predict: f32 images must be {}, as the network expects, but got {}",
              wanted, images.shape());
    return run_in_parts(images);
  }
  const bool can_change =
      (spec.channels == 1 || spec.channels == 3) && (images.dim(3) == 1 || images.dim(3) == 3);
  ATH_CHECK(images.dim(3) == spec.channels || can_change,
            "predict: images must have {} channels, as the network expects, but got {}", spec.channels,
            images.shape());
  return run_in_parts(images.shape() == wanted ? images : resized(place, images.to(kCpu)));
}

Predictions Predictor::Impl::predict(CallState& place, const Tensor& images, std::int64_t top) const {
  ATH_CHECK(top >= 1 && top <= info.images.classes, "predict: top must be in [1, {}], but got {}",
            info.images.classes, top);
  const Tensor scores = logits(place, images);
  ATH_CHECK(scores.rank() == 2 && scores.dim(1) == info.images.classes,
            "predict: the network must return logits [N, {}], but returned {}", info.images.classes,
            scores.shape());
  const InferenceMode inference;
  return largest(softmax(scores).to(kCpu), top);
}

Predictor::Predictor(std::unique_ptr<nn::Module> network, ModelInfo info) {
  ATH_CHECK(network != nullptr, "predictor: there must be a network, but got null");
  ATH_CHECK(
      info.images.classes >= 1 &&
          (info.class_names.empty() || std::ssize(info.class_names) == info.images.classes),
      "predictor: there must be classes, with a name for each or none, but there are {} classes and {} names",
      info.images.classes, info.class_names.size());
  check({.height = info.images.height, .width = info.images.width, .shorter_side = info.shorter_side});
  try {
    check_values(network->state_dict());
  } catch (const ArgumentError& error) {
    detail::fail<>("predictor: {}", error.what());
  }
  impl_ = std::make_unique<Impl>(std::move(network), std::move(info));
}

Predictor::Predictor(const fs::path& model, Device device) {
  const fs::path path = model_of(model);
  ModelFile file = load_model(path);
  auto network = load_network(path, file, device);
  impl_ = std::make_unique<Impl>(std::move(network), std::move(file.info));
}

Predictor::~Predictor() = default;

const ModelInfo& Predictor::info() const {
  return impl_->info;
}

std::string Predictor::class_name(std::int64_t index) const {
  const ModelInfo& info = impl_->info;
  ATH_CHECK(index >= 0 && index < info.images.classes, "predictor: class must be in [0, {}), but got {}",
            info.images.classes, index);
  return info.class_names.empty() ? fmt::to_string(index) : info.class_names[static_cast<std::size_t>(index)];
}

Tensor Predictor::logits(const Tensor& images) const {
  const Lease place(impl_->places);
  return impl_->logits(*place, images);
}

Predictions Predictor::predict(const Tensor& images, std::int64_t top) const {
  const Lease place(impl_->places);
  return impl_->predict(*place, images, top);
}

Predictions Predictor::predict(std::span<const std::span<const std::byte>> files, std::int64_t top) const {
  const Lease place(impl_->places);
  const ImageSpec& spec = impl_->info.images;
  const std::int64_t n = std::ssize(files);
  ATH_CHECK(n > 0, "predict: there must be files, but there are none");
  const Tensor all = Tensor::empty({n, spec.height, spec.width, spec.channels}, {DType::u8});
  for (std::int64_t i = 0; i < n; ++i) {
    try {
      impl_->decode_file(
          *place, files[static_cast<std::size_t>(i)],
          {all.data<std::uint8_t>() + i * spec.bytes(), static_cast<std::size_t>(spec.bytes())});
    } catch (const IoError& error) {
      detail::fail<IoError>("predict: file {}: {}", i, error.what());
    }
  }
  return impl_->predict(*place, all, top);
}

void Predictor::read(std::span<const std::byte> file, std::span<std::uint8_t> pixels) const {
  const Lease place(impl_->places);
  impl_->decode_file(*place, file, pixels);
}

}  // namespace athanor
