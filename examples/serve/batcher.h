#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace athanor::serve {

using Clock = std::chrono::steady_clock;

struct Job;    // examples/serve/service.h
struct Model;  // examples/serve/models.h

/// An image of a request inside the service.
struct Picture {
  /// What a batch has in common: the model's generation, and whether its images are f32.
  using Key = std::pair<std::uint64_t, bool>;

  std::shared_ptr<Job> job = {};                          ///< the request it belongs to
  std::size_t index = 0;                                  ///< index among the job's files
  std::uint64_t generation = 0;                           ///< of the job's model
  bool is_float = false;                                  ///< f32 elements, else u8
  Clock::time_point deadline = Clock::time_point::max();  ///< then its request is late
  std::int64_t stored_pixels = 0;                         ///< of the file, by its header
  std::int64_t decoding_bytes = 0;                        ///< of memory to decode it, by its header
  std::vector<std::uint8_t> pixels = {};                  ///< of the model's size, as bytes
  Clock::time_point decoded = {};                         ///< set by put()

  Key key() const { return {generation, is_float}; }
};

/// Sizes of batches: 1, 2, 4, 8 and so on, and max_batch. oneDNN compiles code and tensors need memory for
/// each size. So 32 sizes would cost more time and memory than letting images wait for the next batch
/// (docs/decisions.md has the figures).
std::vector<std::size_t> batch_sizes(std::size_t max_batch);

/// Images for one model that arrive together share a batch.
///
/// Decoders announce an image by expect(), then deliver it by put(), or call drop() if it is broken. The
/// computing thread calls take() in a loop. A batch has images of one key, in the order of put(), and is
/// ready as soon as
///   - max_batch images of the key wait;
///   - or the oldest has waited for max_delay;
///   - or none of the key is being decoded, so that waiting is useless.
/// It has as many as the largest of batch_sizes() allows; the rest is the next batch. During a computation
/// arriving images gather for the next batch: under load, batches fill without max_delay.
///
/// Models share the time: of several ready batches, take() returns one of the model that has been computed
/// for the shortest time. What passes until the next take() is that model's. One that had nothing to do
/// begins with the time of the last one taken, so it cannot save up. Source: Golestani 1994, self-clocked
/// fair queueing.
class Batcher {
 public:
  /// max_batch >= 1, max_delay >= 0. `now` returns the time; calls come from all threads.
  Batcher(std::size_t max_batch, Clock::duration max_delay,
          std::function<Clock::time_point()> now = Clock::now);

  /// Announces this many images, which will be put() or dropped soon.
  void expect(Picture::Key key, std::size_t images);
  void put(Picture picture);
  void drop(Picture::Key key);
  /// Waits for a batch. Empty after close(), once none is left.
  std::vector<Picture> take();
  /// take() no longer waits for more images, and ends once all announced ones have come.
  void close();

 private:
  struct Queue {
    std::deque<Picture> waiting = {};
    std::size_t expected = 0;
    Clock::duration used{};  ///< by its batches, and while it was idle by others'

    bool is_idle() const { return waiting.empty() && expected == 0; }
  };

  Queue& expected(Picture::Key key, const char* what);
  bool is_ready(const Queue& queue, Clock::time_point now) const;
  std::vector<Picture> cut(Queue& queue) const;

  const std::vector<std::size_t> sizes_;
  const Clock::duration max_delay_;
  const std::function<Clock::time_point()> clock_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<Picture::Key, Queue> queues_;
  Clock::duration now_{};  ///< `used` of the queue that was taken from last, before that
  Picture::Key last_{};    ///< that queue
  Clock::time_point taken_ = Clock::time_point::max();  ///< when; max: its time is already counted
  bool closed_ = false;
};

}  // namespace athanor::serve
