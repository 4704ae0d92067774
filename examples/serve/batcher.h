#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <vector>

namespace athanor::serve {

using Clock = std::chrono::steady_clock;

struct Job;    // examples/serve/service.h
struct Model;  // examples/serve/service.h

/// An image of a request inside the service.
struct Picture {
  std::shared_ptr<Job> job = {};            ///< the request it belongs to
  std::size_t index = 0;                    ///< index among the job's files
  std::shared_ptr<const Model> model = {};  ///< for which it was decoded
  std::uint64_t generation = 0;             ///< of that model: a batch has pictures for one model
  Clock::time_point deadline = Clock::time_point::max();  ///< then its request is late
  std::int64_t stored_pixels = 0;                         ///< of the file, by its header
  std::int64_t decoding_bytes = 0;                        ///< of memory to decode it, by its header
  std::vector<std::uint8_t> pixels = {};                  ///< of the model's size
  Clock::time_point decoded = {};                         ///< set by put()
};

/// Sizes of batches: 1, 2, 4, 8 and so on, and max_batch. oneDNN compiles code and tensors need memory for
/// each size. So 32 sizes would cost more time and memory than letting images wait for the next batch
/// (docs/decisions.md has the figures).
std::vector<std::size_t> batch_sizes(std::size_t max_batch);

/// Images that arrive together share a batch.
///
/// Decoders announce an image by expect(), then deliver it by put(), or call drop() if it is broken. The
/// computing thread calls take() in a loop. It returns a batch, in the order of put(), as soon as
///   - max_batch images wait, or all for one model, if later ones wait for a newer model;
///   - or the oldest has waited for max_delay;
///   - or none is being decoded, so that waiting is useless.
/// It takes as many as the largest of batch_sizes() allows; the rest is the next batch. During a computation
/// arriving images gather for the next batch: under load, batches fill without max_delay.
class Batcher {
 public:
  /// max_batch >= 1, max_delay >= 0.
  Batcher(std::size_t max_batch, Clock::duration max_delay);

  /// Announces this many images, which will be put() or dropped soon.
  void expect(std::size_t images);
  void put(Picture picture);
  void drop();
  /// Waits for a batch. Empty after close(), once none is left.
  std::vector<Picture> take();
  /// take() no longer waits for more images, and ends once all announced ones have come.
  void close();

 private:
  std::size_t batch_here() const;

  const std::vector<std::size_t> sizes_;
  const Clock::duration max_delay_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Picture> waiting_;
  std::size_t expected_ = 0;
  bool closed_ = false;
};

}  // namespace athanor::serve
