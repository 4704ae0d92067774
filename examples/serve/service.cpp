#include "examples/serve/service.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <iterator>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "data/image/decoder.h"
#include "kernels/cpu/context.h"
#include "tensor/base/error.h"
#include "tensor/base/printable.h"

namespace athanor::serve {
namespace {

double seconds(Clock::duration time) {
  return std::chrono::duration<double>(time).count();
}

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

/// Reads the file's header. Throws IoError if it is not an image, or has more pixels than `most`.
void read_head(ImageDecoder& decoder, std::string_view file, std::int64_t most, Picture& picture) {
  const ImageSize size = decoder.open(bytes_of(file));
  picture.stored_pixels = size.height * size.width;
  picture.decoding_bytes = decoder.most_decoding_bytes();
  if (picture.stored_pixels > most) {
    detail::fail<IoError>("image: must have at most {} megapixels, but has {} x {} pixels", most / 1'000'000,
                          size.width, size.height);
  }
}

/// What `read` says against an image; no error if nothing.
Answer failure_of(const std::function<void()>& read) {
  try {
    read();
  } catch (const IoError& error) {
    return {.error = printable(error.what())};
  } catch (const std::exception& error) {
    return {.error = printable(error.what()), .is_fault = true};
  }
  return {};
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

Admission Service::submit(const std::shared_ptr<Job>& job) {
  const std::size_t n = job->files.size();
  ATH_CHECK(n > 0, "serve: a job must have a file, but has none");
  job->answers.resize(n);
  job->to_answer = n;
  const Clock::time_point deadline = Clock::now() + options_.max_age;
  ImageDecoder decoder;
  std::vector<Picture> readable, broken;
  std::int64_t pixels = 0, most_bytes = 0;
  for (std::size_t i = 0; i < n; ++i) {
    Picture picture{.job = job, .index = i, .deadline = deadline};
    job->answers[i] =
        failure_of([&] { read_head(decoder, job->files[i].bytes, options_.max_image_pixels, picture); });
    if (!job->answers[i].error.empty()) {
      picture.stored_pixels = 0;
      broken.push_back(std::move(picture));
      continue;
    }
    pixels += picture.stored_pixels;
    most_bytes = std::max(most_bytes, picture.decoding_bytes);
    readable.push_back(std::move(picture));
  }
  if (pixels > options_.max_queue_pixels || most_bytes > decoding_bytes_) return Admission::too_large;
  job->to_decode = readable.size();
  {
    const std::lock_guard lock(mutex_);
    const bool fits =
        inside_ + n <= options_.max_queue && pixels_inside_ + pixels <= options_.max_queue_pixels;
    if (inside_ > 0 && !fits) return Admission::full;
    inside_ += n;
    pixels_inside_ += pixels;
    metrics_.images_inside = static_cast<std::int64_t>(inside_);
    batcher_.expect(readable.size());
    for (Picture& picture : readable) {
      picture.model = model_;
      picture.generation = model_->generation;
    }
    to_decode_.push(std::move(readable));
    decodable_.notify_all();
  }
  for (const Picture& picture : broken) {
    ++metrics_.broken_images;
    answer(picture, job->answers[picture.index]);
  }
  return Admission::taken;
}

/// Called with the lock held.
std::optional<Picture> Service::next_to_decode() {
  const bool enough = ahead_ >= static_cast<std::size_t>(options_.threads) + 2 * options_.max_batch;
  const std::int64_t room = enough ? 0 : decoding_bytes_ - decoding_now_;
  std::optional<Picture> next = to_decode_.pop(room, Clock::now());
  if (!next) return next;
  ++ahead_;
  decoding_now_ += next->decoding_bytes;
  return next;
}

/// Memory of an image that was decoded, and places of images that left for a batch or are broken.
void Service::give_back(std::int64_t decoding_bytes, std::size_t images) {
  const std::lock_guard lock(mutex_);
  decoding_now_ -= decoding_bytes;
  ahead_ -= images;
  decodable_.notify_all();
}

void Service::decode_loop() {
  cpu_context().set_threads(1);
  while (true) {
    std::optional<Picture> picture;
    {
      std::unique_lock lock(mutex_);
      decodable_.wait(lock, [&] {
        picture = next_to_decode();
        return picture || (closed_ && to_decode_.empty());
      });
    }
    if (!picture) return;
    decode(std::move(*picture));
  }
}

Answer Service::late() const {
  return {.error = fmt::format("the server did not get to this request within {} s; try again soon",
                               seconds(options_.max_age)),
          .is_late = true};
}

void Service::decode(Picture picture) {
  Job& job = *picture.job;
  const std::string_view file = job.files[picture.index].bytes;
  const Predictor& predictor = picture.model->predictor;
  const Clock::time_point begin = Clock::now();
  const bool is_late = begin >= picture.deadline;
  Answer failed = is_late ? late() : failure_of([&] {
    picture.pixels.resize(static_cast<std::size_t>(predictor.info().images.bytes()));
    predictor.read(bytes_of(file), picture.pixels);
  });
  if (!is_late) metrics_.decode_seconds.add(seconds(Clock::now() - begin));
  if (--job.to_decode == 0) job.body.reset();
  const bool is_decoded = failed.error.empty();
  give_back(picture.decoding_bytes, is_decoded ? 0 : 1);
  if (is_decoded) {
    batcher_.put(std::move(picture));
  } else {
    batcher_.drop();
    if (!is_late) ++metrics_.broken_images;
    answer(picture, std::move(failed));
  }
}

void Service::model_loop() {
  cpu_context().set_threads(options_.threads);
  const std::vector<std::size_t> sizes = batch_sizes(options_.max_batch);
  for (std::vector<Picture> batch = batcher_.take(); !batch.empty(); batch = batcher_.take()) {
    give_back(0, batch.size());
    drop_late(batch);
    std::span<Picture> rest = batch;
    while (!rest.empty()) {
      const std::span<Picture> part = rest.first(*std::prev(std::ranges::upper_bound(sizes, rest.size())));
      rest = rest.subspan(part.size());
      const Answer failed = failure_of([&] { compute(part); });
      if (failed.error.empty()) continue;
      for (const Picture& picture : part) {
        if (picture.job) answer(picture, {.error = failed.error, .is_fault = true});
      }
    }
  }
}

void Service::drop_late(std::vector<Picture>& batch) {
  const Clock::time_point now = Clock::now();
  std::erase_if(batch, [&](const Picture& picture) {
    const bool is_late = now >= picture.deadline;
    if (is_late) answer(picture, late());
    return is_late;
  });
}

void Service::compute(std::span<Picture> batch) {
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
    Answer result{.top = predictor.guesses(found, static_cast<std::int64_t>(i), batch[i].job->top),
                  .task = predictor.info().task};
    ++metrics_.images;
    answer(batch[i], std::move(result));
    batch[i].job.reset();  // already answered, in case a later one fails
  }
}

void Service::answer(const Picture& picture, Answer result) {
  Job& job = *picture.job;
  job.answers[picture.index] = std::move(result);
  {
    const std::lock_guard lock(mutex_);
    metrics_.images_inside = static_cast<std::int64_t>(--inside_);
    pixels_inside_ -= picture.stored_pixels;
  }
  if (--job.to_answer == 0) std::exchange(job.done, nullptr)();
}

}  // namespace athanor::serve
