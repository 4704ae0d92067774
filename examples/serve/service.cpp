#include "examples/serve/service.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <iterator>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "autograd/shape.h"
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

/// What an image takes. Of a file it reads the header. Throws IoError if it is not an image, or has more
/// pixels than `most`.
void read_head(ImageDecoder& decoder, const Job& job, std::string_view file, std::int64_t most,
               Picture& picture) {
  if (job.kind != ImageKind::file) {
    const ImageSpec& images = job.model->predictor.info().images;
    picture.stored_pixels = images.height * images.width;
    return;
  }
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
      batcher_(options_.max_batch, options_.max_delay) {
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

void Service::post(std::function<void()> task) {
  const std::lock_guard lock(mutex_);
  tasks_.push_back(std::move(task));
  decodable_.notify_one();
}

Admission Service::submit(const std::shared_ptr<Job>& job) {
  const std::size_t n = job->files.size();
  ATH_CHECK(n > 0, "serve: a job must have a file, but has none");
  job->answers.resize(n);
  job->to_answer = n;
  const Clock::time_point deadline =
      job->arrived + std::min<Clock::duration>(options_.max_age, job->most_age);
  const bool is_float = job->kind == ImageKind::floats;
  ImageDecoder decoder;
  std::vector<Picture> readable, broken;
  std::int64_t pixels = 0, most_bytes = 0;
  for (std::size_t i = 0; i < n; ++i) {
    Picture picture{.job = job,
                    .index = i,
                    .generation = job->model->generation,
                    .is_float = is_float,
                    .deadline = deadline};
    job->answers[i] = failure_of(
        [&] { read_head(decoder, *job, job->files[i].bytes, options_.max_image_pixels, picture); });
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
    if (!readable.empty()) batcher_.expect(readable.front().key(), readable.size());
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
  const std::size_t most = static_cast<std::size_t>(options_.threads) + 2 * options_.max_batch;
  std::optional<Picture> next =
      to_decode_.pop(decoding_bytes_ - decoding_now_, Clock::now(), [&](const Picture& picture) {
        const auto ahead = ahead_.find(picture.key());
        return ahead == ahead_.end() || ahead->second < most;
      });
  if (!next) return next;
  ++ahead_[next->key()];
  decoding_now_ += next->decoding_bytes;
  return next;
}

/// Memory of an image that was decoded, and places of images that left for a batch or are broken.
void Service::give_back(std::int64_t decoding_bytes, Picture::Key key, std::size_t images) {
  const std::lock_guard lock(mutex_);
  decoding_now_ -= decoding_bytes;
  if (images > 0 && (ahead_[key] -= images) == 0) ahead_.erase(key);
  decodable_.notify_all();
}

void Service::decode_loop() {
  cpu_context().set_threads(1);
  while (true) {
    std::function<void()> task;
    std::optional<Picture> picture;
    {
      std::unique_lock lock(mutex_);
      decodable_.wait(lock, [&] {
        if (!tasks_.empty()) {
          task = std::move(tasks_.front());
          tasks_.pop_front();
          return true;
        }
        picture = next_to_decode();
        return picture || (closed_ && to_decode_.empty());
      });
    }
    if (task) {
      task();
    } else if (picture) {
      decode(std::move(*picture));
    } else {
      return;
    }
  }
}

Answer Service::late(const Job& job) const {
  return {.error = fmt::format("the server did not get to this request within {} s; try again soon",
                               seconds(std::min<Clock::duration>(options_.max_age, job.most_age))),
          .is_late = true};
}

void Service::decode(Picture picture) {
  Job& job = *picture.job;
  const std::string_view file = job.files[picture.index].bytes;
  const Predictor& predictor = job.model->predictor;
  const Clock::time_point begin = Clock::now();
  const bool is_late = begin >= picture.deadline, is_file = job.kind == ImageKind::file;
  Answer failed = is_late ? late(job) : failure_of([&] {
    if (!is_file) {
      picture.pixels.assign(file.begin(), file.end());
      return;
    }
    picture.pixels.resize(static_cast<std::size_t>(predictor.info().images.bytes()));
    predictor.read(bytes_of(file), picture.pixels);
  });
  if (!is_late && is_file) metrics_.decode_seconds.add(seconds(Clock::now() - begin));
  if (--job.to_decode == 0) job.body.reset();
  const bool is_decoded = failed.error.empty();
  give_back(picture.decoding_bytes, picture.key(), is_decoded ? 0 : 1);
  if (is_decoded) {
    batcher_.put(std::move(picture));
  } else {
    batcher_.drop(picture.key());
    if (!is_late) ++metrics_.broken_images;
    answer(picture, std::move(failed));
  }
}

void Service::model_loop() {
  cpu_context().set_threads(options_.threads);
  const std::vector<std::size_t> sizes = batch_sizes(options_.max_batch);
  for (std::vector<Picture> batch = batcher_.take(); !batch.empty(); batch = batcher_.take()) {
    give_back(0, batch.front().key(), batch.size());
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
    if (is_late) answer(picture, late(*picture.job));
    return is_late;
  });
}

void Service::compute(std::span<Picture> batch) {
  const std::shared_ptr<const Model> model = batch.front().job->model;  // after the last answer, too
  const Predictor& predictor = model->predictor;
  const ImageSpec& images = predictor.info().images;
  const Tensor all = Tensor::empty({std::ssize(batch), images.height, images.width, images.channels},
                                   {batch.front().is_float ? DType::f32 : DType::u8});
  std::int64_t most = 1;
  bool wants_all = false;
  const Clock::time_point begin = Clock::now();
  for (std::size_t i = 0; i < batch.size(); ++i) {
    const std::vector<std::uint8_t>& pixels = batch[i].pixels;
    std::memcpy(all.raw_data() + i * pixels.size(), pixels.data(), pixels.size());
    most = std::max(most, std::min(batch[i].job->top, images.classes));
    wants_all |= batch[i].job->wants_all;
    metrics_.wait_seconds.add(seconds(begin - batch[i].decoded));
  }
  const Tensor logits = predictor.logits(all), probabilities = predictor.probabilities(logits);
  const Predictions found = predictor.most_probable(probabilities, most);
  const double computed = seconds(Clock::now() - begin);
  metrics_.model_seconds.add(computed);
  metrics_.batch_images.add(static_cast<double>(batch.size()));
  ++model->counts.batches;
  model->counts.compute_seconds += computed;
  const Tensor dense = wants_all ? contiguous(logits) : Tensor(),
               dense_probabilities = wants_all ? contiguous(probabilities) : Tensor();
  for (std::size_t i = 0; i < batch.size(); ++i) {
    Job& job = *batch[i].job;
    Answer result{.top = predictor.guesses(found, static_cast<std::int64_t>(i), job.top),
                  .task = predictor.info().task};
    if (job.wants_all) {
      const auto row = [&](const Tensor& of) {
        const float* const first = of.data<float>() + static_cast<std::int64_t>(i) * images.classes;
        return std::vector<float>(first, first + images.classes);
      };
      result.logits = row(dense);
      result.probabilities = row(dense_probabilities);
    }
    ++metrics_.images;
    ++model->counts.images;
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
