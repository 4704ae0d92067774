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

/// An image of a request on its way through the service.
struct Picture {
  std::shared_ptr<Job> job = {};            ///< whose answer it is part of
  std::size_t index = 0;                    ///< which of the job's files
  std::shared_ptr<const Model> model = {};  ///< it was decoded for
  std::uint64_t generation = 0;             ///< of that model: pictures for different models share no batch
  std::vector<std::uint8_t> pixels = {};    ///< of the model's size
  Clock::time_point decoded = {};           ///< put() fills it in
};

/// Sizes of batches: 1, 2, 4, 8 and so on, and max_batch. For each size oneDNN compiles code of its own and
/// tensors have blocks of their own, so that 32 sizes would cost more time and memory than the images that
/// wait for the next batch (docs/decisions.md has the figures).
std::vector<std::size_t> batch_sizes(std::size_t max_batch);

/// Images that arrive together share a batch.
///
/// Decoders announce an image by expect() and hand it over by put(), or say by drop() that it is broken. Who
/// computes calls take() in a loop. It returns a batch, in the order of put(), as soon as
///   - max_batch images wait, or all that wait for one model, where others behind them wait for a newer one;
///   - or the oldest has waited for max_delay;
///   - or none is being decoded, so that there is nothing to wait for;
/// and of those that wait as many as the largest of batch_sizes() holds. The others are the next batch.
/// While a batch is being computed nobody is in take(), and those that come wait for the next one together:
/// under load batches fill by themselves, and max_delay costs nothing.
class Batcher {
 public:
  /// max_batch >= 1, max_delay >= 0.
  Batcher(std::size_t max_batch, Clock::duration max_delay);

  /// So many images will be put() or dropped soon.
  void expect(std::size_t images);
  void put(Picture picture);
  void drop();
  /// Waits. Empty after close(), when nothing is left.
  std::vector<Picture> take();
  /// take() no longer waits for company, and ends when all that was expected has come.
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
