#include "examples/serve/service.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <new>
#include <span>
#include <string_view>
#include <utility>

#include "data/image/decoder.h"
#include "kernels/context.h"
#include "tensor/error.h"
#include "tensor/printable.h"

namespace athanor::serve {
namespace {

double seconds(Clock::duration time) {
  return std::chrono::duration<double>(time).count();
}

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

/// Throws IoError if it is not an image, or has more pixels than `most`.
void check_head(std::string_view file, std::int64_t most) {
  if (!file.starts_with("\xff\xd8") && !PngDecoder::recognises(bytes_of(file)) &&
      !WebpDecoder::recognises(bytes_of(file)) && !ImageDecoder::is_heic(bytes_of(file)))
    detail::fail<IoError>("image: must be a JPEG, PNG or WebP, but is none");
  ImageDecoder decoder;
  const ImageSize size = decoder.open(bytes_of(file));
  if (size.height * size.width > most) {
    detail::fail<IoError>("image: must have at most {} megapixels, but has {} x {} pixels", most / 1'000'000,
                          size.width, size.height);
  }
}

ServiceOptions with_threads(ServiceOptions options) {
  if (options.threads <= 0) options.threads = cpu_context().threads();
  return options;
}

}  // namespace

Service::Service(ServiceOptions options, Metrics& metrics)
    : options_(with_threads(std::move(options))),
      metrics_(metrics),
      batcher_(options_.max_batch, options_.max_delay),
      model_(load(1)) {
  metrics_.model_classes = model_->predictor.info().images.classes;
  metrics_.model_generation = 1;
  for (int i = 0; i < options_.threads; ++i) decoders_.emplace_back([this] { decode_loop(); });
  computer_ = std::thread([this] { model_loop(); });
}

Service::~Service() {
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    decodable_.notify_all();
  }
  for (std::thread& thread : decoders_) thread.join();
  batcher_.close();
  computer_.join();
}

std::shared_ptr<const Model> Service::load(std::uint64_t generation) const {
  auto model = std::make_shared<const Model>(options_.model, generation);
  const ImageSpec& images = model->predictor.info().images;
  ATH_CHECK(images.channels == 1 || images.channels == 3,
            "serve: the model must take images of 1 or 3 channels, but takes {}", images.channels);
  // The first call packs the weights, and the first of each size compiles: do it before clients wait.
  const int threads_before = cpu_context().threads();
  cpu_context().set_threads(options_.threads);  // primitives depend on the number of threads
  std::vector<std::size_t> sizes = batch_sizes(options_.max_batch);
  std::reverse(sizes.begin(), sizes.end());  // smaller ones can reuse memory of larger ones
  for (const std::size_t size : sizes) {
    const auto n = static_cast<std::int64_t>(size);
    model->predictor.predict(Tensor::zeros({n, images.height, images.width, images.channels}, {DType::u8}));
  }
  cpu_context().set_threads(threads_before);
  return model;
}

std::shared_ptr<const Model> Service::model() const {
  const std::lock_guard lock(mutex_);
  return model_;
}

void Service::reload() {
  std::shared_ptr<const Model> next = load(model()->generation + 1);
  metrics_.model_classes = next->predictor.info().images.classes;
  metrics_.model_generation = static_cast<std::int64_t>(next->generation);
  const std::lock_guard lock(mutex_);
  model_.swap(next);  // the old model is freed after its last answer
}

bool Service::submit(const std::shared_ptr<Job>& job) {
  const std::size_t n = job->files.size();
  ATH_CHECK(n > 0, "serve: a job must have a file, but has none");
  job->answers.resize(n);
  job->to_decode = job->to_answer = n;
  const std::lock_guard lock(mutex_);
  if (inside_ > 0 && inside_ + n > options_.max_queue) return false;
  inside_ += n;
  metrics_.images_inside = static_cast<std::int64_t>(inside_);
  batcher_.expect(n);
  for (std::size_t i = 0; i < n; ++i)
    to_decode_.push_back({.job = job, .index = i, .model = model_, .generation = model_->generation});
  n == 1 ? decodable_.notify_one() : decodable_.notify_all();
  return true;
}

void Service::decode_loop() {
  cpu_context().set_threads(1);
  while (true) {
    std::unique_lock lock(mutex_);
    decodable_.wait(lock, [this] { return closed_ || !to_decode_.empty(); });
    if (to_decode_.empty()) return;
    Picture picture = std::move(to_decode_.front());
    to_decode_.pop_front();
    lock.unlock();
    decode(std::move(picture));
  }
}

void Service::decode(Picture picture) {
  Job& job = *picture.job;
  const std::string_view file = job.files[picture.index].bytes;
  const Predictor& predictor = picture.model->predictor;
  const Clock::time_point begin = Clock::now();
  Answer failed;
  try {
    check_head(file, options_.max_image_pixels);
    picture.pixels.resize(static_cast<std::size_t>(predictor.info().images.bytes()));
    predictor.read(bytes_of(file), picture.pixels);
  } catch (const IoError& error) {
    failed.error = printable(error.what());
  } catch (const std::exception& error) {
    failed = {.error = printable(error.what()), .is_fault = true};
  }
  metrics_.decode_seconds.add(seconds(Clock::now() - begin));
  if (--job.to_decode == 0) job.body.reset();
  if (failed.error.empty()) {
    batcher_.put(std::move(picture));
  } else {
    batcher_.drop();
    ++metrics_.broken_images;
    answer(picture, std::move(failed));
  }
}

void Service::model_loop() {
  cpu_context().set_threads(options_.threads);
  for (std::vector<Picture> batch = batcher_.take(); !batch.empty(); batch = batcher_.take()) {
    try {
      compute(batch);
    } catch (const std::exception& error) {
      const Answer fault{.error = printable(error.what()), .is_fault = true};
      for (const Picture& picture : batch) {
        if (picture.job) answer(picture, fault);
      }
    }
  }
}

void Service::compute(std::vector<Picture>& batch) {
  const Predictor& predictor = batch.front().model->predictor;
  const ImageSpec& images = predictor.info().images;
  const Tensor all =
      Tensor::empty({std::ssize(batch), images.height, images.width, images.channels}, {DType::u8});
  std::int64_t most = 1;
  const Clock::time_point begin = Clock::now();
  for (std::size_t i = 0; i < batch.size(); ++i) {
    const std::vector<std::uint8_t>& pixels = batch[i].pixels;
    std::memcpy(all.data<std::uint8_t>() + i * pixels.size(), pixels.data(), pixels.size());
    most = std::max(most, std::min(batch[i].job->top, images.classes));
    metrics_.wait_seconds.add(seconds(begin - batch[i].decoded));
  }
  const Predictions found = predictor.predict(all, most);
  metrics_.model_seconds.add(seconds(Clock::now() - begin));
  metrics_.batch_images.add(static_cast<double>(batch.size()));
  for (std::size_t i = 0; i < batch.size(); ++i) {
    Answer said;
    const std::int64_t row = static_cast<std::int64_t>(i) * most;
    for (std::int64_t k = row; k < row + std::min(batch[i].job->top, images.classes); ++k) {
      const std::int64_t index = found.classes.data<std::int64_t>()[k];
      said.top.push_back({predictor.class_name(index), index, found.probabilities.data<float>()[k]});
    }
    ++metrics_.images;
    answer(batch[i], std::move(said));
    batch[i].job.reset();  // already answered, in case a later one fails
  }
}

void Service::answer(const Picture& picture, Answer said) {
  Job& job = *picture.job;
  job.answers[picture.index] = std::move(said);
  {
    const std::lock_guard lock(mutex_);
    metrics_.images_inside = static_cast<std::int64_t>(--inside_);
  }
  if (--job.to_answer == 0) std::exchange(job.done, nullptr)();
}

}  // namespace athanor::serve
