#include "trainer/inference/predictor.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "autograd/elementwise.h"
#include "autograd/grad_mode.h"
#include "autograd/packed_model.h"
#include "autograd/shape.h"
#include "autograd/softmax.h"
#include "autograd/topk.h"
#include "data/image/reader.h"
#include "data/preprocess.h"
#include "kernels/cpu/borrowed_context.h"
#include "kernels/cpu/context.h"
#include "kernels/cpu/isa.h"
#include "nn/scale_outputs.h"
#include "tensor/base/error.h"
#include "trainer/frozen_weights.h"
#include "trainer/inference/batch_parts.h"

namespace athanor {
namespace {

constexpr std::int64_t kLeastInParts = 8;        // images; fewer are computed together
constexpr std::int64_t kKeptPixels = 4'000'000;  // memory to decode a larger image is freed after it

/// Working state of one call.
struct Workspace {
  CpuContext context;
  std::unique_ptr<ImageReader> reader;
  std::vector<std::uint8_t> rgb;  // of an image to be converted to grey
};

/// Grows to the number of concurrent calls.
struct StatePool {
  std::mutex mutex;
  std::vector<std::unique_ptr<Workspace>> free;  // last in, first out: its memory is warm
  std::size_t made = 0;
};

/// Borrows a state for a scope, with its context as this thread's.
class Lease {
 public:
  explicit Lease(StatePool& pool) : pool_(pool) {
    {
      const std::lock_guard lock(pool_.mutex);
      if (pool_.free.empty()) {
        pool_.free.reserve(++pool_.made);
        pool_.free.push_back(std::make_unique<Workspace>());
      }
      state_ = std::move(pool_.free.back());
      pool_.free.pop_back();
    }
    borrowed_.emplace(state_->context);
  }
  ~Lease() {
    borrowed_.reset();
    const ImageSize size = state_->reader ? state_->reader->stored_size() : ImageSize();
    if (size.height * size.width > kKeptPixels) state_->reader.reset();
    const std::lock_guard lock(pool_.mutex);
    pool_.free.push_back(std::move(state_));
  }
  Lease(const Lease&) = delete;
  Lease& operator=(const Lease&) = delete;
  Workspace& operator*() const { return *state_; }

 private:
  StatePool& pool_;
  std::unique_ptr<Workspace> state_;
  std::optional<BorrowedContext> borrowed_;
};

Device device_of(const nn::Module& network) {
  const std::vector<Parameter> parameters = network.parameters();
  if (!parameters.empty()) return parameters.front().tensor.device();
  const std::vector<NamedTensor> buffers = network.buffers();  // of a quantized network
  return buffers.empty() ? kCpu : buffers.front().tensor.device();
}

Tensor in_dtype(const Tensor& x, DType dtype) {
  return x.dtype() == dtype ? x : cast(x, dtype);
}

/// A row for each image: [K] f32 on the device.
Tensor row_of(const std::vector<double>& values, Device device) {
  const std::vector<float> rounded(values.begin(), values.end());
  return Tensor::from(rounded, {std::ssize(rounded)}).to(device);
}

/// Undoes scale_outputs().
void unscale_outputs(nn::Module& network, const ModelInfo& info) {
  std::vector<double> mean, scale;
  for (std::size_t i = 0; i < info.output_scale.size(); ++i) {
    mean.push_back(-info.output_mean[i] / info.output_scale[i]);
    scale.push_back(1 / info.output_scale[i]);
  }
  nn::scale_outputs(network, mean, scale);
}

/// ITU-R BT.601.
void to_luma(std::span<const std::uint8_t> rgb, std::span<std::uint8_t> grey) {
  for (std::size_t i = 0; i < grey.size(); ++i) {
    const int luma = 299 * rgb[3 * i] + 587 * rgb[3 * i + 1] + 114 * rgb[3 * i + 2];
    grey[i] = static_cast<std::uint8_t>((luma + 500) / 1000);
  }
}

}  // namespace

std::string no_faster_than_f32(Precision precision, Device device) {
  const bool slow = precision == Precision::f16 || (precision == Precision::bf16 && !cpu::has_avx512_bf16());
  if (!slow || !device.is_cpu()) return {};
  return fmt::format("this CPU does not multiply {}: predictions in f32 are faster", name_of(precision));
}

struct Predictor::Impl {
  ModelInfo info;
  std::unique_ptr<nn::Module> network;
  Device device;
  Precision precision;
  std::optional<FrozenWeights> rounded;  // of a half precision
  Tensor output_mean, output_scale;      // of numbers in a half precision, which may not hold their mean
  PackedModel packed;
  Preprocess preprocess;
  ImageTransform transform;
  TestTimeAugmentation views;
  mutable StatePool pool;
  mutable std::once_flag measured;
  mutable PassBytes pass;

  Impl(std::unique_ptr<nn::Module> module, ModelInfo about, Precision in, TestViews tta)
      : info(std::move(about)),
        network(std::move(module)),
        device(device_of(*network)),
        precision(in),
        preprocess(info.images, info.pixels, dtype(), device),
        transform(resizing(info)),
        views(tta, info.images.height, info.images.width, device) {
    ATH_CHECK(!info.is_quantized() || precision == Precision::f32,
              "predict: a quantized model computes in {}, and has no other precision", info.quantized);
    network->to(DType::f32);
    network->eval();
    if (dtype() == DType::f32) return;
    if (!info.output_scale.empty()) {
      unscale_outputs(*network, info);
      output_mean = row_of(info.output_mean, device);
      output_scale = row_of(info.output_scale, device);
    }
    rounded.emplace(network->parameters(), network->buffers(), precision, device);
    if (device.is_cpu()) rounded->keep_unrounded(packed);
  }

  /// Of images and activations.
  DType dtype() const { return compute_dtype(precision); }

  void decode(Workspace& state, const StoredSample& sample, std::span<std::uint8_t> pixels) const;
  Tensor resized(Workspace& state, const Tensor& images) const;
  Tensor run(const Tensor& images) const;
  Tensor run_in_parts(const Tensor& images) const;
  Tensor logits(Workspace& state, const Tensor& images) const;
  Tensor probabilities(const Tensor& results) const;
  Predictions most_probable(const Tensor& results, std::int64_t top) const;
};

/// Decodes an image of any size with 1 or 3 channels to `pixels` of the model's size and channels.
void Predictor::Impl::decode(Workspace& state, const StoredSample& sample,
                             std::span<std::uint8_t> pixels) const {
  const bool raw = sample.codec == Codec::raw;
  const bool grey = info.images.channels == 1 && (!raw || sample.channels == 3);
  if (grey) state.rgb.resize(pixels.size() * 3);
  if (!state.reader) state.reader = std::make_unique<ImageReader>();
  state.reader->read(sample, transform, {}, grey ? 3 : info.images.channels,
                     grey ? std::span(state.rgb) : pixels);
  if (grey) to_luma(state.rgb, pixels);
}

Tensor Predictor::Impl::resized(Workspace& state, const Tensor& images) const {
  const ImageSpec& spec = info.images;
  const std::int64_t n = images.dim(0), h = images.dim(1), w = images.dim(2), c = images.dim(3);
  const Tensor all = Tensor::empty({n, spec.height, spec.width, spec.channels}, {DType::u8});
  for (std::int64_t i = 0; i < n; ++i) {
    const StoredSample sample{
        .bytes = {images.raw_data() + i * h * w * c, static_cast<std::size_t>(h * w * c)},
        .height = h,
        .width = w,
        .channels = c};
    decode(state, sample,
           {all.data<std::uint8_t>() + i * spec.bytes(), static_cast<std::size_t>(spec.bytes())});
  }
  return all;
}

/// This and the next: the one place that knows what the results of each task mean. results [N, K].
Tensor Predictor::Impl::probabilities(const Tensor& results) const {
  ATH_CHECK(results.rank() == 2 && results.dim(1) == info.images.classes,
            "predict: the network must return logits [N, {}], but returned {}", info.images.classes,
            results.shape());
  const InferenceMode inference;
  if (info.task == LabelKind::values) return contiguous(results.to(kCpu));
  return (info.task == LabelKind::classes ? softmax(results) : sigmoid(results)).to(kCpu);
}

/// probabilities [N, K], on the CPU.
Predictions Predictor::Impl::most_probable(const Tensor& probabilities, std::int64_t top) const {
  const std::int64_t classes = info.images.classes;
  ATH_CHECK(top >= 1 && top <= classes, "predict: top must be in [1, {}], but got {}", classes, top);
  if (info.task == LabelKind::values) {
    std::vector<std::int64_t> indices;
    for (std::int64_t i = 0; i < probabilities.numel(); ++i) indices.push_back(i % classes);
    return {Tensor::from(indices, probabilities.shape()), probabilities};
  }
  const InferenceMode inference;
  const TopK largest = topk(probabilities, info.task == LabelKind::classes ? top : classes);
  return {largest.indices, largest.values};
}

/// Images of the model's size through the network, whose intermediate tensors are tagged. Results are f32.
Tensor Predictor::Impl::run(const Tensor& images) const {
  Batch batch;
  if (images.dtype() != DType::f32) {
    batch.images = images;
    batch.samples = Tensor::zeros({images.dim(0)}, {DType::i64});
  }
  const Tensor x =
      batch.images.defined() ? preprocess(batch, 0, false) : in_dtype(images.to(device), dtype());
  const AllocTag tag("activations");
  const Tensor results = in_dtype(views(*network, x), DType::f32);
  return output_scale.defined() ? results * output_scale + output_mean : results;
}

Tensor Predictor::Impl::run_in_parts(const Tensor& images) const {
  const std::int64_t batch = images.dim(0);
  std::int64_t part = batch;
  if (batch >= kLeastInParts && device.is_cpu()) {
    std::call_once(measured, [this] { pass = measure_pass(*network, info.images, dtype()); });
    part = images_at_a_time(pass, batch, cpu_context().threads());
  }
  const InferenceMode inference(packed);
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

Tensor Predictor::Impl::logits(Workspace& state, const Tensor& images) const {
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
  return run_in_parts(images.shape() == wanted ? images : resized(state, images.to(kCpu)));
}

Predictor::Predictor(std::unique_ptr<nn::Module> network, ModelInfo info, Precision precision) {
  ATH_CHECK(network != nullptr, "predictor: there must be a network, but got null");
  ATH_CHECK(
      info.images.classes >= 1 &&
          (info.class_names.empty() || std::ssize(info.class_names) == info.images.classes),
      "predictor: there must be classes, with a name for each or none, but there are {} classes and {} names",
      info.images.classes, info.class_names.size());
  check(resizing(info));
  try {
    check_values(network->state_dict());
  } catch (const ArgumentError& error) {
    detail::fail<>("predictor: {}", error.what());
  }
  impl_ = std::make_unique<Impl>(std::move(network), std::move(info), precision, TestViews::none);
}

Predictor::Predictor(const std::filesystem::path& model, Device device, TestViews tta, Precision precision) {
  OpenModel open = open_model(model);
  if (!device.is_cpu()) open.network->to(device);
  impl_ = std::make_unique<Impl>(std::move(open.network), std::move(open.file.info), precision, tta);
}

Predictor::~Predictor() = default;

const ModelInfo& Predictor::info() const {
  return impl_->info;
}

Precision Predictor::precision() const {
  return impl_->precision;
}

std::string Predictor::class_name(std::int64_t index) const {
  const ModelInfo& info = impl_->info;
  ATH_CHECK(index >= 0 && index < info.images.classes, "predictor: class must be in [0, {}), but got {}",
            info.images.classes, index);
  return info.class_names.empty() ? fmt::to_string(index) : info.class_names[static_cast<std::size_t>(index)];
}

Tensor Predictor::logits(const Tensor& images) const {
  const Lease state(impl_->pool);
  return impl_->logits(*state, images);
}

Predictions Predictor::predict(const Tensor& images, std::int64_t top) const {
  const std::int64_t classes = info().images.classes;
  ATH_CHECK(top >= 1 && top <= classes, "predict: top must be in [1, {}], but got {}", classes, top);
  const Lease state(impl_->pool);
  return impl_->most_probable(impl_->probabilities(impl_->logits(*state, images)), top);
}

Tensor Predictor::probabilities(const Tensor& logits) const {
  const Lease state(impl_->pool);
  return impl_->probabilities(logits);
}

Predictions Predictor::most_probable(const Tensor& probabilities, std::int64_t top) const {
  const Lease state(impl_->pool);
  return impl_->most_probable(probabilities, top);
}

Predictions Predictor::predict(std::span<const std::span<const std::byte>> files, std::int64_t top) const {
  const ImageSpec& spec = info().images;
  ATH_CHECK(!files.empty(), "predict: there must be files, but there are none");
  const Tensor all = Tensor::empty({std::ssize(files), spec.height, spec.width, spec.channels}, {DType::u8});
  const auto bytes = static_cast<std::size_t>(spec.bytes());
  for (std::size_t i = 0; i < files.size(); ++i) {
    try {
      read(files[i], {all.data<std::uint8_t>() + i * bytes, bytes});
    } catch (const IoError& error) {
      detail::fail<IoError>("predict: file {}: {}", i, error.what());
    }
  }
  return predict(all, top);
}

std::vector<Guess> Predictor::guesses(const Predictions& found, std::int64_t image,
                                      std::int64_t count) const {
  const ModelInfo& info = impl_->info;
  const std::int64_t top = found.classes.dim(1);
  const std::int64_t wanted = info.task == LabelKind::classes ? std::min(count, top) : top;
  std::vector<Guess> guesses;
  for (std::int64_t i = image * top; i < image * top + wanted; ++i) {
    const std::int64_t index = found.classes.data<std::int64_t>()[i];
    const float probability = found.probabilities.data<float>()[i];
    const bool present =
        info.task == LabelKind::multilabel && double{probability} >= info.threshold_of(index);
    guesses.push_back({class_name(index), index, probability, present});
  }
  return guesses;
}

void Predictor::read(std::span<const std::byte> file, std::span<std::uint8_t> pixels) const {
  const ImageSpec& images = info().images;
  ATH_CHECK(images.channels == 1 || images.channels == 3,
            "predict: the model must take images of 1 or 3 channels, but takes {}", images.channels);
  ATH_CHECK(std::ssize(pixels) == images.bytes(), "predict: the buffer must hold {} bytes, but holds {}",
            images.bytes(), pixels.size());
  const Lease state(impl_->pool);
  impl_->decode(*state, {.bytes = file, .codec = Codec::jpeg},
                pixels);  // or another format: first bytes decide
}

}  // namespace athanor
