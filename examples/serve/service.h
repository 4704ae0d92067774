#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "examples/serve/batcher.h"
#include "examples/serve/fair_queue.h"
#include "examples/serve/inference_request.h"
#include "examples/serve/metrics.h"
#include "examples/serve/models.h"
#include "examples/serve/multipart.h"
#include "trainer/inference/predictor.h"

namespace athanor::serve {

/// The answer for one image.
struct Answer {
  std::vector<Guess> top = {};  ///< as Predictor::guesses() gives them
  LabelKind task = LabelKind::classes;
  std::vector<float> logits = {}, probabilities = {};  ///< per class, if the job wants them
  std::string error = {};                              ///< why the image could not be read, in one sentence
  bool is_fault = false;                               ///< a server error, not caused by the image
  bool is_late = false;  ///< the request waited for too long, and this image was not computed
};

/// A request's images and their answers. The submitter sets all members above `answers`.
struct Job {
  std::shared_ptr<const Model> model = {};
  std::shared_ptr<const std::string> body = {};  ///< to which `files` point; released once all are decoded
  std::vector<UploadedFile> files = {};
  ImageKind kind = ImageKind::file;          ///< what the bytes of `files` are
  std::int64_t top = 3;                      ///< number of classes per image, or all if there are fewer
  bool wants_all = false;                    ///< logits and probabilities of all classes, too
  Clock::time_point arrived = Clock::now();  ///< the end of the request
  Clock::duration most_age = Clock::duration::max();  ///< if it is shorter than the service's
  std::function<void()> done = {};   ///< called once, by a service thread, when all are answered
  std::vector<Answer> answers = {};  ///< one per file
  std::atomic<std::size_t> to_decode = 0, to_answer = 0;
};

struct ServiceOptions {
  std::size_t max_batch = 32;
  std::chrono::microseconds max_delay{2000};
  std::size_t max_queue = 256;                    ///< maximum images inside
  std::int64_t max_queue_pixels = 1'000'000'000;  ///< of all images inside, by their headers
  std::chrono::milliseconds max_age{10'000};      ///< older requests are not computed
  int threads = 0;                                ///< of the model, and as many decoders; 0: number of cores
  std::int64_t max_image_pixels = 50'000'000;     ///< of larger images only the header is read
};

/// Whether a job was taken.
enum class Admission {
  taken,
  full,       ///< it does not fit now
  too_large,  ///< it never fits: too many pixels in all, or an image that needs too much memory
};

/// Classifies images for any number of clients and models: several threads decode, in the order of FairQueue,
/// one computes batches, in the order of Batcher. Of each model, decoded images for at most two batches wait,
/// so that later requests keep their turns.
class Service {
 public:
  Service(ServiceOptions options, Metrics& metrics);
  /// Answers everything submitted first.
  ~Service();
  Service(const Service&) = delete;
  Service& operator=(const Service&) = delete;

  const ServiceOptions& options() const { return options_; }
  /// Runs a task, which may not throw, on a thread that decodes, before other images.
  void post(std::function<void()> task);
  /// Takes a job of at least one file, unless that would exceed the limits: then done() is not called. A job
  /// with more files than max_queue is taken if the queue is empty. After max_age, images that are not yet
  /// computed are answered as late.
  Admission submit(const std::shared_ptr<Job>& job);
  /// Memory for images while they are decoded. Call it before the first submit().
  void limit_decoding(std::int64_t bytes) {
    const std::lock_guard lock(mutex_);
    decoding_bytes_ = bytes;
  }
  std::int64_t decoding_bytes() const { return decoding_bytes_; }

 private:
  void decode_loop();
  void model_loop();
  std::optional<Picture> next_to_decode();
  void decode(Picture picture);
  void give_back(std::int64_t decoding_bytes, Picture::Key key, std::size_t images);
  void drop_late(std::vector<Picture>& batch);
  void compute(std::span<Picture> batch);
  void answer(const Picture& picture, Answer answer);
  Answer late(const Job& job) const;

  const ServiceOptions options_;
  Metrics& metrics_;
  Batcher batcher_;
  mutable std::mutex mutex_;  // guards all below but the threads
  std::condition_variable decodable_;
  std::deque<std::function<void()>> tasks_;
  FairQueue to_decode_;
  std::size_t inside_ = 0;
  std::int64_t pixels_inside_ = 0;  // of their files
  std::int64_t decoding_bytes_ = std::numeric_limits<std::int64_t>::max(), decoding_now_ = 0;
  std::map<Picture::Key, std::size_t> ahead_;  // images that are being decoded, or wait for their batch
  bool closed_ = false;
  std::vector<std::thread> decoders_;
  std::thread computer_;
};

}  // namespace athanor::serve
