#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "examples/serve/batcher.h"
#include "examples/serve/metrics.h"
#include "examples/serve/multipart.h"
#include "trainer/inference/predictor.h"

namespace athanor::serve {

/// A loaded model, with its number since the start: 1, 2, ...
struct Model {
  Model(const std::filesystem::path& path, std::uint64_t which) : predictor(path), generation(which) {}

  const Predictor predictor;
  const std::uint64_t generation;
};

/// The answer for one image.
struct Answer {
  struct Guess {
    std::string name;  ///< of the class
    std::int64_t index;
    float probability;
  };
  std::vector<Guess> top = {};  ///< most probable first
  std::string error = {};       ///< why the image could not be read, in one sentence
  bool is_fault = false;        ///< a server error, not caused by the image
};

/// A request's images and their answers. The submitter sets the first four members.
struct Job {
  std::shared_ptr<const std::string> body = {};  ///< to which `files` point; released once all are decoded
  std::vector<UploadedFile> files = {};
  std::int64_t top = 3;              ///< number of classes per image, or all if there are fewer
  std::function<void()> done = {};   ///< called once, by a service thread, when all are answered
  std::vector<Answer> answers = {};  ///< one per file
  std::atomic<std::size_t> to_decode = 0, to_answer = 0;
};

struct ServiceOptions {
  std::filesystem::path model;  ///< a run's folder, a link to it, or its model.safetensors
  std::size_t max_batch = 32;
  std::chrono::microseconds max_delay{2000};
  std::size_t max_queue = 256;                 ///< maximum images inside
  int threads = 0;                             ///< of the model, and as many decoders; 0: number of cores
  std::int64_t max_image_pixels = 50'000'000;  ///< of larger images only the header is read
};

/// Classifies images for any number of clients: several threads decode, one computes batches.
class Service {
 public:
  /// Loads the model and computes a batch of each size. Throws what Predictor throws.
  Service(ServiceOptions options, Metrics& metrics);
  /// Answers everything submitted first.
  ~Service();
  Service(const Service&) = delete;
  Service& operator=(const Service&) = delete;

  const ServiceOptions& options() const { return options_; }
  /// The current model.
  std::shared_ptr<const Model> model() const;
  /// Reloads the file, which may have changed. Images already submitted are answered by the old model. Throws
  /// as the constructor; then nothing has changed.
  void reload();
  /// False if the queue is full: then done() is not called. A job with more files than max_queue is accepted
  /// if the queue is empty. At least one file.
  bool submit(const std::shared_ptr<Job>& job);

 private:
  std::shared_ptr<const Model> load(std::uint64_t generation) const;
  void decode_loop();
  void model_loop();
  void decode(Picture picture);
  void compute(std::vector<Picture>& batch);
  void answer(const Picture& picture, Answer answer);

  const ServiceOptions options_;
  Metrics& metrics_;
  Batcher batcher_;
  mutable std::mutex mutex_;  // guards all below but the threads
  std::condition_variable decodable_;
  std::shared_ptr<const Model> model_;
  std::deque<Picture> to_decode_;
  std::size_t inside_ = 0;
  bool closed_ = false;
  std::vector<std::thread> decoders_;
  std::thread computer_;
};

}  // namespace athanor::serve
