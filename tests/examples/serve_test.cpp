#include <array>
#include <atomic>
#include <cmath>
#include <filesystem>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "examples/serve/answers.h"
#include "examples/serve/fair_queue.h"
#include "examples/serve/metrics.h"
#include "examples/serve/models.h"
#include "examples/serve/multipart.h"
#include "examples/serve/service.h"
#include "tests/support/errors.h"
#include "tests/support/small_model.h"
#include "tests/support/temp_dir.h"
#include "trainer/checkpoints/state_file.h"

// The parts of `athanor serve` that know no HTTP.

namespace athanor::serve::serve_test {

// Multipart ------------------------------------------------------------------------------------------------

constexpr std::string_view kType = "multipart/form-data; boundary=XX";

std::string part(const std::string& disposition, const std::string& bytes) {
  return "--XX\r\nContent-Disposition: form-data; " + disposition + "\r\nContent-Type: image/png\r\n\r\n" +
         bytes + "\r\n";
}

TEST(Multipart, KnowsItsType) {
  EXPECT_TRUE(is_multipart("multipart/form-data; boundary=x"));
  EXPECT_TRUE(is_multipart("Multipart/Form-Data;boundary=x"));
  EXPECT_FALSE(is_multipart("application/x-www-form-urlencoded"));
  EXPECT_FALSE(is_multipart("multipart/form-database"));
  EXPECT_FALSE(is_multipart(""));
}

TEST(Multipart, FindsFilesInTheirOrder) {
  const std::string body = "a preamble\r\n" + part("name=\"a\"; filename=\"one.png\"", "1\r\n--X\r\n2") +
                           part("name=\"comment\"", "no file") + part("name=file", std::string("\0\1", 2)) +
                           part("filename=three.png; name=x", "") + "--XX--\r\nan epilogue";
  const std::vector<UploadedFile> files = parse_multipart(kType, body);
  ASSERT_EQ(files.size(), 3u);
  EXPECT_EQ(files[0].name, "one.png");
  EXPECT_EQ(files[0].bytes, "1\r\n--X\r\n2");
  EXPECT_EQ(files[1].name, std::nullopt);
  EXPECT_EQ(files[1].bytes, std::string_view("\0\1", 2));
  EXPECT_EQ(files[2].name, "three.png");
  EXPECT_EQ(files[2].bytes, "");
  EXPECT_EQ(parse_multipart("multipart/form-data; charset=x; boundary=\"XX\"", body).size(), 3u);
}

TEST(Multipart, UnderstandsNamesOfAllKinds) {
  const auto name_of = [](const std::string& disposition) {
    return parse_multipart(kType, part(disposition, "x") + "--XX--").at(0).name.value_or("none");
  };
  EXPECT_EQ(name_of("filename=\"a \\\"b\\\" \\\\ c\\d;e.png\""), "a \"b\" \\ c\\d;e.png");
  EXPECT_EQ(name_of("FILENAME=\"\xc3\xbc.png\""), "\xc3\xbc.png");
  EXPECT_EQ(name_of("filename=\"\""), "");
  EXPECT_EQ(name_of("filename=\"no end"), "no end");
  EXPECT_EQ(name_of("filename=\"" + std::string(4000, 'n') + "\"").size(), 255u);
  EXPECT_EQ(name_of("name;;  name = file ;"), "none");
}

TEST(Multipart, RejectsUnterminatedInput) {
  const std::string whole = part("filename=a", "bytes") + "--XX--";
  for (std::size_t n = 0; n < whole.size(); ++n)
    EXPECT_THROW(parse_multipart(kType, whole.substr(0, n)), ArgumentError) << n;
  EXPECT_ERROR(ArgumentError, parse_multipart("multipart/form-data", whole), "multipart", "boundary",
               "'multipart/form-data'");
  EXPECT_ERROR(ArgumentError, parse_multipart("multipart/form-data; boundary=" + std::string(71, 'x'), whole),
               "multipart", "boundary", "1", "70");
  EXPECT_ERROR(ArgumentError,
               parse_multipart(kType, part("filename=" + std::string(9000, 'n'), "x") + "--XX--"),
               "multipart", "part 0", "8192");
  std::string many;
  for (std::size_t i = 0; i <= kMaxFiles; ++i) many += part("filename=a", "b");
  EXPECT_ERROR(ArgumentError, parse_multipart(kType, many + "--XX--"), "multipart", "64");
}

// Metrics --------------------------------------------------------------------------------------------------

TEST(ServeMetrics, AreWrittenForPrometheus) {
  Metrics metrics;
  metrics.count_request(200);
  metrics.count_request(200);
  metrics.count_request(418);
  metrics.images = 7;
  for (const double value : {0.5, 1.0, 1.5, 300.0}) metrics.batch_images.add(value);
  const std::string text = metrics.text();
  for (const char* line :
       {"athanor_requests_total{code=\"200\"} 2\n", "athanor_requests_total{code=\"503\"} 0\n",
        "athanor_requests_total{code=\"other\"} 1\n",
        "# TYPE athanor_images_total counter\nathanor_images_total 7\n",
        "athanor_batch_images_bucket{le=\"1\"} 2\n", "athanor_batch_images_bucket{le=\"2\"} 3\n",
        "athanor_batch_images_bucket{le=\"256\"} 3\n", "athanor_batch_images_bucket{le=\"+Inf\"} 4\n",
        "athanor_batch_images_sum 303\n", "athanor_batch_images_count 4\n"})
    EXPECT_NE(text.find(line), std::string::npos) << line << text;
  EXPECT_EQ(metrics.requests(418), 1u);
  EXPECT_GT(resident_bytes(), 1'000'000);
}

// The order of decoding -------------------------------------------------------------------------------------

/// The images of a request, numbered from `first`.
std::vector<Picture> request(std::size_t first, std::size_t count, std::int64_t pixels) {
  std::vector<Picture> pictures;
  for (std::size_t i = 0; i < count; ++i)
    pictures.push_back({.index = first + i, .stored_pixels = pixels, .decoding_bytes = 4 * pixels});
  return pictures;
}

std::vector<std::size_t> order(FairQueue& queue, std::size_t count) {
  std::vector<std::size_t> found;
  while (found.size() < count) found.push_back(queue.pop(1'000'000, {}).value().index);
  return found;
}

using Order = std::vector<std::size_t>;

TEST(FairQueue, ASmallRequestPassesALargeOne) {
  FairQueue queue;
  queue.push(request(0, 32, 1000));
  EXPECT_EQ(order(queue, 2), (Order{0, 1}));
  queue.push(request(100, 2, 10));
  EXPECT_EQ(order(queue, 3), (Order{100, 101, 2}));
}

TEST(FairQueue, EqualRequestsTakeTurns) {
  FairQueue queue;
  for (const std::size_t first : {0, 10, 20}) queue.push(request(first, 2, 50));
  EXPECT_EQ(order(queue, 6), (Order{0, 10, 20, 1, 11, 21}));
  EXPECT_TRUE(queue.empty());
}

TEST(FairQueue, ALargeImageHasItsTurnAmongSmallOnesWithoutEnd) {
  FairQueue queue;
  queue.push(request(999, 1, 100));
  std::size_t before = 0;
  for (queue.push(request(0, 1, 10)); order(queue, 1)[0] != 999; queue.push(request(0, 1, 10)))
    ASSERT_LT(++before, 20u);
}

TEST(FairQueue, GivesTheFirstThatFitsIntoMemory) {
  FairQueue queue;
  queue.push(request(0, 1, 100));
  queue.push(request(1, 1, 200));
  EXPECT_FALSE(queue.pop(399, {}));
  queue.push(request(2, 1, 90));
  EXPECT_EQ(queue.pop(399, {}).value().index, 2u);
  EXPECT_EQ(order(queue, 2), (Order{0, 1}));
}

TEST(FairQueue, GivesLateImagesFirst) {
  FairQueue queue;
  queue.push(request(0, 1, 10));
  std::vector<Picture> late = request(1, 2, 1000);
  for (Picture& picture : late) picture.deadline = Clock::time_point() + std::chrono::seconds(1);
  queue.push(std::move(late));
  const Clock::time_point then = Clock::time_point() + std::chrono::seconds(2);
  EXPECT_EQ(queue.pop(0, then).value().index, 1u);
  EXPECT_EQ(queue.pop(0, then).value().index, 2u);
  EXPECT_FALSE(queue.pop(0, then));
  EXPECT_EQ(queue.pop(40, then).value().index, 0u);
}

// The service ----------------------------------------------------------------------------------------------

using test::kDigits;
using test::save_small_model;

std::string picture(std::uint64_t seed) {
  return test::png_of(test::photo(12, 10, 1, seed));
}

/// Jobs, and how many of them are done.
struct Jobs {
  std::vector<std::shared_ptr<Job>> all;
  std::atomic<int> done = 0;

  std::shared_ptr<Job> add(const Models& models, const std::vector<std::string>& files,
                           std::int64_t top = 3) {
    auto job = std::make_shared<Job>();
    job->model = models.standard();
    auto body = std::make_shared<std::string>();
    for (const std::string& file : files) *body += file;
    std::size_t at = 0;
    for (const std::string& file : files) {
      job->files.push_back({.name = "x.png", .bytes = std::string_view(*body).substr(at, file.size())});
      at += file.size();
    }
    job->body = body;
    job->top = top;
    job->done = [this] { ++done; };
    all.push_back(job);
    return job;
  }
  void wait_for(int count) const {
    while (done < count) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
};

void expect_answer(const Predictor& predictor, const std::string& file, const Answer& answer) {
  const std::array<std::span<const std::byte>, 1> files{std::as_bytes(std::span(file))};
  const Predictions found = predictor.predict(files, 3);
  ASSERT_EQ(answer.top.size(), 3u) << answer.error;
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(answer.top[i].index, found.classes.data<std::int64_t>()[i]);
    EXPECT_NEAR(answer.top[i].probability, found.probabilities.data<float>()[i], 2e-6);
    EXPECT_EQ(answer.top[i].name, predictor.class_name(answer.top[i].index));
  }
}

class ServeService : public testing::Test {
 protected:
  /// The file of model 1.
  static const std::filesystem::path& saved(const std::filesystem::path& path) {
    save_small_model(path, 1);
    return path;
  }

  ServiceOptions options(std::size_t max_queue = 1000) const {
    return {.max_batch = 8, .max_queue = max_queue, .threads = 2};
  }
  ModelsOptions only_model() const { return {.given = {{"digits", path_}}, .max_batch = 8, .threads = 2}; }
  std::shared_ptr<Job> add(const std::vector<std::string>& files, std::int64_t top = 3) {
    return jobs_.add(models_, files, top);
  }

  const test::TempDir dir_;
  const std::filesystem::path path_ = saved(dir_ / "model.safetensors");
  Metrics metrics_;
  std::vector<std::string> said_;
  Models models_{only_model(), metrics_, [this](const std::string& line) { said_.push_back(line); }};
  Jobs jobs_;
};

TEST_F(ServeService, AnswersAsThePredictorDoes) {
  const Predictor predictor(path_);
  std::vector<std::string> files;
  for (std::uint64_t i = 0; i < 5; ++i) files.push_back(picture(i));
  files.insert(files.begin() + 2, "no picture");
  {
    Service service(options(), metrics_);
    EXPECT_EQ(service.submit(add(files)), Admission::taken);
    EXPECT_EQ(service.submit(add({files[0]}, 99)), Admission::taken);
    EXPECT_EQ(service.submit(add({"nor this"})), Admission::taken);
  }
  ASSERT_EQ(jobs_.done, 3);
  const Job& several = *jobs_.all[0];
  for (std::size_t i = 0; i < files.size(); ++i) {
    if (i != 2) expect_answer(predictor, files[i], several.answers[i]);
  }
  EXPECT_TRUE(test::names(several.answers[2].error, {"image", "JPEG", "PNG", "WebP"}));
  EXPECT_EQ(several.body, nullptr);
  EXPECT_EQ(jobs_.all[1]->answers[0].top.size(), 10u);
  EXPECT_EQ(metrics_.images, 6u);
  EXPECT_EQ(metrics_.broken_images, 2u);
  EXPECT_EQ(metrics_.images_inside, 0);

  const auto json = nlohmann::json::parse(reply_to(several).text);
  EXPECT_EQ(reply_to(several).code, 200);
  EXPECT_EQ(json["images"].size(), 6u);
  EXPECT_EQ(json["images"][2], (nlohmann::json{{"image", "x.png"}, {"error", several.answers[2].error}}));
  EXPECT_EQ(json["images"][0]["top"][0]["index"], several.answers[0].top[0].index);
  EXPECT_EQ(reply_to(*jobs_.all[2]).code, 400);
  EXPECT_EQ(reply_to(*jobs_.all[2]).text,
            (nlohmann::json{{"error", jobs_.all[2]->answers[0].error}}.dump() + "\n"));
}

TEST_F(ServeService, RefusesMoreThanTheQueueHolds) {
  const std::vector<std::string> three(3, picture(1));
  Service service(options(4), metrics_);
  const std::vector<std::string> nine(9, picture(1));
  EXPECT_EQ(service.submit(add(nine)), Admission::taken);  // alone: as many as it has
  int taken = 1, refused = 0;
  for (int i = 0; i < 200 || (refused == 0 && i < 100'000); ++i)  // a fast service may empty it in time
    ++(service.submit(add(three)) == Admission::taken ? taken : refused);
  jobs_.wait_for(taken);
  EXPECT_GT(refused, 0);
  EXPECT_EQ(metrics_.images, 9u + 3u * static_cast<unsigned>(taken - 1));
  EXPECT_EQ(service.submit(add(three)), Admission::taken);
}

TEST_F(ServeService, RefusesImagesThatAreTooLarge) {
  ServiceOptions small = options();
  small.max_image_pixels = 119;
  {
    Service service(small, metrics_);
    EXPECT_EQ(service.submit(add({picture(1)})), Admission::taken);
  }
  EXPECT_TRUE(test::names(jobs_.all[0]->answers[0].error, {"image", "0", "10 x 12"}));
}

TEST_F(ServeService, RefusesMorePixelsThanTheQueueHolds) {
  ServiceOptions small = options();
  small.max_queue_pixels = 250;  // a picture has 120
  const std::vector<std::string> two(2, picture(1)), three(3, picture(1));
  Service service(small, metrics_);
  EXPECT_EQ(service.submit(add(three)), Admission::too_large);
  int taken = 0, refused = 0;
  for (int i = 0; i < 200 || (refused == 0 && i < 100'000); ++i)
    ++(service.submit(add(two)) == Admission::taken ? taken : refused);
  jobs_.wait_for(taken);
  EXPECT_GT(refused, 0);
  EXPECT_EQ(metrics_.images, 2u * static_cast<unsigned>(taken));
  EXPECT_EQ(service.submit(add(two)), Admission::taken);
}

TEST_F(ServeService, RefusesImagesThatNeedTooMuchMemory) {
  Service service(options(), metrics_);
  service.limit_decoding(4 * 120 - 1);
  EXPECT_EQ(service.submit(add({picture(1)})), Admission::too_large);
  service.limit_decoding(4 * 120);
  EXPECT_EQ(service.submit(add(std::vector<std::string>(9, picture(1)))), Admission::taken);
  jobs_.wait_for(1);
  EXPECT_EQ(metrics_.images, 9u);
}

TEST_F(ServeService, DoesNotComputeWhatIsLate) {
  ServiceOptions hurried = options();
  hurried.max_age = std::chrono::milliseconds(0);
  {
    Service service(hurried, metrics_);
    EXPECT_EQ(service.submit(add({picture(1), "no picture"})), Admission::taken);
  }
  const Job& job = *jobs_.all[0];
  EXPECT_TRUE(job.answers[0].is_late);
  EXPECT_EQ(reply_to(job).code, 503);
  EXPECT_EQ(metrics_.images, 0u);
  EXPECT_EQ(metrics_.images_inside, 0);
}

TEST(ServeReply, IsAServerErrorOnlyIfNothingWasAnswered) {
  Job job;
  job.files.resize(2);
  job.answers = {{.error = "no memory", .is_fault = true}, {.error = "no picture"}};
  EXPECT_EQ(reply_to(job).code, 500);
  job.answers[1] = {};
  EXPECT_EQ(reply_to(job).code, 200);
  job.answers[1] = {.error = "late", .is_late = true};
  EXPECT_EQ(reply_to(job).code, 503);
}

TEST(ServeReply, IsWhatTheTaskOfTheModelSays) {
  Job job;
  job.files = {{.name = "a.png"}};
  const auto reply = [&](LabelKind task, std::vector<Guess> guesses) {
    job.answers = {{.top = std::move(guesses), .task = task}};
    return reply_to(job).text;
  };
  const Guess cat{"cat", 1, 0.75, true}, dog{"dog", 0, 0.25, false};
  EXPECT_EQ(reply(LabelKind::classes, {{"cat", 1, 0.75}}),
            "{\"image\":\"a.png\",\"top\":[{\"class\":\"cat\",\"index\":1,\"probability\":0.75}]}\n");
  EXPECT_EQ(reply(LabelKind::multilabel, {cat, dog}),
            "{\"image\":\"a.png\",\"labels\":[\"cat\"],\"top\":[{\"class\":\"cat\",\"index\":1,"
            "\"probability\":0.75,"
            "\"present\":true},{\"class\":\"dog\",\"index\":0,\"probability\":0.25,\"present\":false}]}\n");
  EXPECT_EQ(reply(LabelKind::multilabel, {dog}),
            "{\"image\":\"a.png\",\"labels\":[],\"top\":[{\"class\":\"dog\",\"index\":0,\"probability\":0.25,"
            "\"present\":false}]}\n");
  EXPECT_EQ(reply(LabelKind::values, {{"age", 0, -31.5}, {"height", 1, 180}}),
            "{\"image\":\"a.png\",\"values\":{\"age\":-31.5,\"height\":180.0}}\n");
}

TEST_F(ServeService, SwapsModelsBetweenBatchesUnderLoad) {
  constexpr std::size_t kClients = 4, kEach = 60;
  save_small_model(dir_ / "other.safetensors", 2);
  const Predictor first(path_), second(dir_ / "other.safetensors");
  Service service(options(), metrics_);
  std::vector<Jobs> clients(kClients);
  std::vector<std::thread> threads;
  for (std::size_t c = 0; c < kClients; ++c) {
    threads.emplace_back([&, c] {
      for (std::size_t i = 0; i < kEach; ++i) {
        EXPECT_EQ(service.submit(clients[c].add(models_, {picture(i)})), Admission::taken);
        if (i % 4 == 0) clients[c].wait_for(static_cast<int>(i));
      }
      clients[c].wait_for(kEach);
    });
  }
  std::filesystem::copy_file(dir_ / "other.safetensors", path_,
                             std::filesystem::copy_options::overwrite_existing);
  models_.refresh(true);
  EXPECT_EQ(models_.standard()->generation, 2u);
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(service.submit(add({picture(3)})), Admission::taken);
  jobs_.wait_for(1);
  expect_answer(second, picture(3), jobs_.all[0]->answers[0]);
  for (const Jobs& client : clients) {
    for (std::size_t i = 0; i < kEach; ++i) {
      const std::string file = picture(i);
      const std::array<std::span<const std::byte>, 1> files{std::as_bytes(std::span(file))};
      const float said = client.all[i]->answers[0].top.at(0).probability;
      EXPECT_TRUE(std::abs(said - first.predict(files).probabilities.data<float>()[0]) < 2e-6f ||
                  std::abs(said - second.predict(files).probabilities.data<float>()[0]) < 2e-6f);
    }
  }
}

TEST_F(ServeService, KeepsTheModelIfTheNewOneIsUnusable) {
  const Predictor predictor(path_);
  Service service(options(), metrics_);
  test::write_file(path_, "no model");
  models_.refresh(true);
  EXPECT_EQ(models_.standard()->generation, 1u);
  ASSERT_EQ(said_.size(), 1u);
  EXPECT_TRUE(test::names(said_[0], {"digits: the model is unchanged", "model.safetensors"}));
  EXPECT_EQ(metrics_.failed_reloads, 1u);
  EXPECT_EQ(metrics_.of_model("digits").failed_loads, 1u);
  EXPECT_EQ(service.submit(add({picture(3)})), Admission::taken);
  jobs_.wait_for(1);
  expect_answer(predictor, picture(3), jobs_.all[0]->answers[0]);
  EXPECT_THROW(Models(only_model(), metrics_, {}), IoError);
}

TEST_F(ServeService, KeepsModelsWhoseFolderCannotBeReadAndForgetsThoseThatAreGone) {
  const std::filesystem::path folder = dir_ / "models", name = folder / "digits";
  std::filesystem::create_directories(name / "1");
  std::filesystem::copy_file(path_, name / "1" / "model.safetensors");
  Models models({.folder = folder, .max_batch = 1}, metrics_,
                [this](const std::string& line) { said_.push_back(line); });
  ASSERT_NE(models.find("digits"), nullptr);
  std::filesystem::rename(name, folder / ".away");
  std::filesystem::create_symlink("digits", name);  // to itself
  models.refresh(false);
  EXPECT_NE(models.find("digits"), nullptr);
  ASSERT_EQ(said_.size(), 1u);
  EXPECT_TRUE(test::names(said_[0], {"digits: the model is unchanged", "cannot be read"}));
  EXPECT_THROW(models.load("digits"), ArgumentError);
  EXPECT_NE(models.find("digits"), nullptr);
  std::filesystem::remove(name);
  models.refresh(false);
  EXPECT_EQ(models.find("digits"), nullptr);
}

TEST_F(ServeService, AModelThatIsUnloadedBeforeItWasSeenStaysUnloaded) {
  const std::filesystem::path folder = dir_ / "models";
  std::filesystem::create_directories(folder);
  Models models({.folder = folder, .max_batch = 1}, metrics_, [](const std::string&) {});
  std::filesystem::create_directories(folder / "digits" / "1");
  std::filesystem::copy_file(path_, folder / "digits" / "1" / "model.safetensors");
  models.unload("digits");
  models.refresh(true);
  EXPECT_EQ(models.find("digits"), nullptr);
  models.load("digits");
  EXPECT_NE(models.find("digits"), nullptr);
}

TEST_F(ServeService, AnswersPixelsAsThePredictorDoes) {
  const Predictor predictor(path_);
  const Tensor images = test::noise_images({3, 8, 8, 1});
  const Tensor floats = Tensor::empty({2, 8, 8, 1}, {DType::f32});
  for (int i = 0; i < 128; ++i) floats.data<float>()[i] = static_cast<float>(i) / 64 - 1;
  const auto job_of = [&](const Tensor& tensor, ImageKind kind) {
    auto job = std::make_shared<Job>();
    job->model = models_.standard();
    job->kind = kind;
    job->wants_all = true;
    job->body =
        std::make_shared<std::string>(reinterpret_cast<const char*>(tensor.raw_data()), tensor.bytes());
    const std::size_t size = tensor.bytes() / static_cast<std::size_t>(tensor.dim(0));
    for (std::int64_t i = 0; i < tensor.dim(0); ++i)
      job->files.push_back(
          {.bytes = std::string_view(*job->body).substr(static_cast<std::size_t>(i) * size, size)});
    job->done = [this] { ++jobs_.done; };
    return job;
  };
  const auto bytes = job_of(images, ImageKind::bytes), normalised = job_of(floats, ImageKind::floats);
  {
    Service service(options(), metrics_);
    EXPECT_EQ(service.submit(bytes), Admission::taken);
    EXPECT_EQ(service.submit(normalised), Admission::taken);
  }
  ASSERT_EQ(jobs_.done, 2);
  for (const auto& [job, tensor] : {std::pair{bytes, images}, std::pair{normalised, floats}}) {
    const Tensor logits = predictor.logits(tensor);
    for (std::size_t i = 0; i < job->answers.size(); ++i) {
      const Answer& answer = job->answers[i];
      ASSERT_EQ(answer.logits.size(), 10u) << answer.error;
      float sum = 0;
      for (std::size_t k = 0; k < 10; ++k) {
        EXPECT_NEAR(answer.logits[k], logits.data<float>()[10 * i + k], 1e-5);
        sum += answer.probabilities[k];
      }
      EXPECT_NEAR(sum, 1, 1e-5);
      EXPECT_EQ(answer.probabilities[static_cast<std::size_t>(answer.top.at(0).index)],
                answer.top[0].probability);
    }
  }
  EXPECT_EQ(metrics_.of_model("digits").images, 5u);
  EXPECT_EQ(metrics_.images_inside, 0);
}

TEST_F(ServeService, AJobMayHaveLessTimeThanOthers) {
  const auto job = add({picture(1)});
  job->most_age = Clock::duration::zero();
  {
    Service service(options(), metrics_);
    EXPECT_EQ(service.submit(job), Admission::taken);
    EXPECT_EQ(service.submit(add({picture(2)})), Admission::taken);
  }
  EXPECT_TRUE(job->answers[0].is_late);
  EXPECT_TRUE(jobs_.all[1]->answers[0].error.empty());
}

TEST_F(ServeService, RunsTasksBeforeItEnds) {
  int ran = 0;
  {
    Service service(options(), metrics_);
    service.post([&] {
      service.submit(add({picture(1)}));
      ++ran;
    });
  }
  EXPECT_EQ(ran, 1);
  EXPECT_EQ(jobs_.done, 1);
}

}  // namespace athanor::serve::serve_test
