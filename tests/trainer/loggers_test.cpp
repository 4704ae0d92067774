// --logger: what steps and epochs come to, in JSON lines, a CSV table and TensorBoard's event files.
#include <algorithm>
#include <cstring>
#include <fstream>
#include <map>
#include <set>
#include <span>
#include <sstream>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "data/formats/detail/record_frame.h"
#include "dist/transports/thread_transport.h"
#include "tests/support/errors.h"
#include "tests/support/event_file.h"
#include "tests/support/small_tasks.h"
#include "tests/support/temp_dir.h"
#include "tests/support/written.h"
#include "trainer/loggers/csv_log.h"
#include "trainer/loggers/step_log.h"
#include "trainer/loggers/tensorboard.h"

namespace athanor::loggers_test {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;
using test::Events;
using test::events_in;
using test::fields_of;
using test::number;

TrainerConfig logging_config(const fs::path& run_dir, std::int64_t every) {
  TrainerConfig config = test::small_config();
  config.run_dir = run_dir;
  config.log_csv = config.log_tensorboard = true;
  config.log_every = every;
  return config;
}

std::vector<Json> json_lines(const fs::path& folder, const std::string& event) {
  return test::json_lines(folder / "metrics.jsonl", event);
}

using Row = std::map<std::string, std::string>;

/// Rows of a table whose lines all end with CR LF and have the header's columns.
std::vector<Row> csv_rows(const fs::path& folder) {
  const std::string all = test::read_file(folder / "metrics.csv");
  std::vector<std::vector<std::string>> lines;
  for (std::size_t begin = 0; begin < all.size();) {
    const std::size_t end = all.find("\r\n", begin);
    EXPECT_NE(end, all.npos) << "a line that does not end";
    std::vector<std::string> fields{""};
    for (const char c : all.substr(begin, end - begin)) {
      if (c == ',')
        fields.emplace_back();
      else
        fields.back() += c;
    }
    lines.push_back(fields);
    begin = end + 2;
  }
  std::vector<Row> rows;
  for (std::size_t i = 1; i < lines.size(); ++i) {
    EXPECT_EQ(lines[i].size(), lines[0].size()) << "row " << i;
    Row row;
    for (std::size_t k = 0; k < lines[0].size(); ++k) row[lines[0][k]] = lines[i][k];
    rows.push_back(row);
  }
  return rows;
}

std::vector<fs::path> event_files(const fs::path& folder) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(folder))
    if (entry.path().filename().string().starts_with("events.out.tfevents.")) files.push_back(entry.path());
  return files;
}

TEST(Loggers, WriteEveryFewStepsAndEveryEpoch) {
  const test::TempDir dir;
  const TrainerConfig config = logging_config(dir / "run", 4);
  const test::RecordedRun run = test::run(config);
  const std::vector<Json> lines = json_lines(dir / "run", "step");
  ASSERT_EQ(lines.size(), 7u) << "of 30 steps";
  const std::vector<Row> rows = csv_rows(dir / "run");
  ASSERT_EQ(rows.size(), 7u + 3u);
  ASSERT_EQ(event_files(dir / "run").size(), 1u);
  const Events events = events_in(event_files(dir / "run")[0]);
  std::size_t row = 0;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const Json& line = lines[i];
    const auto step = static_cast<std::int64_t>(4 * (i + 1));
    const StepReport& result = run.results.at(static_cast<std::size_t>(step) - 1);
    EXPECT_EQ(line.at("step"), step);
    EXPECT_EQ(line.at("epoch"), (step - 1) / 10 + 1);
    EXPECT_EQ(line.at("result"), "applied");
    EXPECT_EQ(line.at("learning_rate").get<float>(), result.learning_rate);
    EXPECT_EQ(line.at("grad_norm").get<float>(), result.grad_norm);
    EXPECT_EQ(line.at("loss_scale"), 1);
    EXPECT_GT(line.at("images_per_s").get<double>(), 0);
    EXPECT_GE(line.at("data_wait_s").get<double>(), 0);
    while (rows[row].at("event") == "epoch") ++row;
    EXPECT_EQ(rows[row].at("event"), "step");
    EXPECT_EQ(rows[row].at("session"), "1");
    for (const char* name :
         {"step", "epoch", "result", "train_loss", "train_accuracy", "learning_rate", "grad_norm"}) {
      const Json& value = line.at(name);
      const std::string text = value.is_string() ? value.get<std::string>() : value.dump();
      if (value.is_number_float()) {
        EXPECT_EQ(std::stof(rows[row].at(name)), value.get<float>()) << name;
        EXPECT_EQ(events.scalars.at(fmt::format("step/{}", name)).at(step), value.get<float>()) << name;
      } else {
        EXPECT_EQ(rows[row].at(name), text) << name;
      }
    }
    ++row;
  }
  for (const EpochReport& epoch : run.epochs) {
    const std::int64_t step = epoch.epoch * 10;
    EXPECT_EQ(events.scalars.at("val_loss").at(step), static_cast<float>(epoch.val_loss));
    EXPECT_EQ(events.scalars.at("train_accuracy").at(step), static_cast<float>(epoch.train_accuracy));
  }
  EXPECT_EQ(std::stof(rows.back().at("val_loss")), static_cast<float>(run.epochs[2].val_loss));
  EXPECT_EQ(rows.back().at("step"), "30");
  for (const char* tag : {"weights/hidden.weight", "weights/out.bias", "gradients/hidden.weight"})
    EXPECT_EQ(events.histograms.at(tag), 3) << tag;
}

// The loss of an epoch is the mean of its steps' losses; nothing of the run is another for being logged.
TEST(Loggers, LogEachStepsOwnLossAndChangeNothing) {
  const test::TempDir dir;
  TrainerConfig plain = test::small_config();
  plain.run_dir = dir / "plain";  // has checkpoints, too
  plain.log_json = false;
  const test::RecordedRun expected = test::run(plain);
  TrainerConfig config = logging_config("", 1);
  config.run_dir = dir / "run";
  const test::RecordedRun run = test::run(config);
  EXPECT_EQ(run.report.weights_hash, expected.report.weights_hash);
  EXPECT_EQ(run.report.peak_bytes, expected.report.peak_bytes);
  EXPECT_EQ(run.report.host_syncs, expected.report.host_syncs);
  const std::vector<Json> lines = json_lines(dir / "run", "step");
  ASSERT_EQ(lines.size(), 30u);
  for (std::size_t epoch = 0; epoch < 3; ++epoch) {
    double loss = 0, accuracy = 0;
    for (std::size_t i = 10 * epoch; i < 10 * (epoch + 1); ++i) {
      loss += lines[i].at("train_loss").get<double>() / 10;
      accuracy += lines[i].at("train_accuracy").get<double>() / 10;
    }
    EXPECT_NEAR(loss, run.epochs[epoch].train_loss, 1e-6);
    EXPECT_NEAR(accuracy, run.epochs[epoch].train_accuracy, 1e-6);
    EXPECT_EQ(run.epochs[epoch].train_loss, expected.epochs[epoch].train_loss);
    EXPECT_EQ(run.epochs[epoch].val_accuracy, expected.epochs[epoch].val_accuracy);
  }
  EXPECT_NE(lines[0].at("train_loss"), lines[1].at("train_loss"));
}

// Gradients in f16 are scaled, weights are not: TensorBoard shows both as they are in f32.
TEST(Loggers, UnscaleGradientsAndLogSkippedSteps) {
  const test::TempDir dir;
  TrainerConfig config = logging_config(dir / "run", 1);
  config.precision = Precision::f16;
  config.loss_scaling = LossScaling{.initial = 1024};
  const test::RecordedRun run = test::run(config, 160, [](int call, const Tensor& logits) {
    if (call == 7) logits.data<Half>()[0] = Half(INFINITY);
  });
  EXPECT_EQ(run.report.steps.skipped_overflow, 1);
  const std::vector<Json> lines = json_lines(dir / "run", "step");
  ASSERT_EQ(lines.size(), 30u);
  EXPECT_EQ(lines[6].at("result"), "skipped_overflow");
  EXPECT_EQ(lines[6].at("loss_scale"), 512);
  EXPECT_EQ(csv_rows(dir / "run")[6].at("result"), "skipped_overflow");
  const fs::path file = event_files(dir / "run").at(0);
  EXPECT_EQ(events_in(file).scalars.at("step/skipped").at(7), 1);
  // The squares of all histograms of gradients add up to the norm of the epoch's last step.
  double squares = 0;
  const std::string text = test::read_file(file);
  std::span<const std::byte> rest = std::as_bytes(std::span(text));
  while (const auto data = detail::framed_record(rest)) {
    rest = rest.subspan(data->size() + detail::kRecordHead + detail::kRecordTail);
    const auto event = fields_of(detail::text_of(*data));
    if (!event.contains(5) || event.find(2)->second != "30") continue;
    const auto value = fields_of(fields_of(event.find(5)->second).find(1)->second);
    if (value.find(1)->second.starts_with("gradients/"))
      squares += number<double>(fields_of(value.find(5)->second).find(5)->second);
  }
  EXPECT_NEAR(std::sqrt(squares), run.results.back().grad_norm, 1e-3 * run.results.back().grad_norm);
}

struct Killed : std::runtime_error {
  Killed() : std::runtime_error("killed") {}
};

TEST(Loggers, ContinueTheFilesOfAKilledRun) {
  const test::TempDir dir;
  TrainerConfig config = logging_config(dir / "run", 2);
  config.checkpoint_every = 5;
  const auto run = [&](std::int64_t killed_after) {
    test::Perceptron model;
    Trainer trainer(config);
    try {
      (void)test::record(trainer, model, *synthetic(test::kSmallSpec, 160, 1),
                         *synthetic(test::kSmallSpec, 50, 2), [&](Trainer&, const StepInfo& step) {
                           if (step.attempted == killed_after) throw Killed();
                         });
    } catch (const Killed&) {
    }
  };
  run(13);
  // As a process leaves them that is killed while it writes.
  for (const fs::path& file :
       {dir / "run/metrics.jsonl", dir / "run/metrics.csv", event_files(dir / "run").at(0)})
    std::ofstream(file, std::ios::app | std::ios::binary) << "{\"event\":\"st";
  config.resume = "auto";
  run(-1);

  const std::vector<Json> resumes = json_lines(dir / "run", "resume");
  ASSERT_EQ(resumes.size(), 1u);
  EXPECT_EQ(resumes[0].at("attempted_steps"), 10);
  EXPECT_EQ(json_lines(dir / "run", "step").size(), 6u + 10u);
  std::map<std::string, std::string> newest;  // session of each step
  const std::vector<Row> rows = csv_rows(dir / "run");
  for (const Row& row : rows) {
    EXPECT_TRUE(row.at("session") == "1" || row.at("session") == "2") << row.at("session");
    if (row.at("event") == "step") newest[row.at("step")] = row.at("session");
  }
  ASSERT_EQ(newest.size(), 15u);
  EXPECT_EQ(newest.at("10"), "1");
  EXPECT_EQ(newest.at("12"), "2") << "made again";
  EXPECT_EQ(std::count_if(rows.begin(), rows.end(), [](const Row& row) { return row.at("step") == "12"; }),
            2);
  ASSERT_EQ(event_files(dir / "run").size(), 1u);
  const Events events = events_in(event_files(dir / "run")[0]);
  EXPECT_EQ(events.sessions, (std::vector<std::int64_t>{1, 11}));
  EXPECT_EQ(events.scalars.at("step/train_loss").size(), 15u);
  // A run that is finished has nothing to add.
  const std::string table = test::read_file(dir / "run/metrics.csv");
  run(-1);
  EXPECT_EQ(test::read_file(dir / "run/metrics.csv"), table);
}

/// Logs the same in training and validation, and something else besides.
struct Logging : test::Autoencoder {
  Tensor training_step(const Batch& batch, Step& step) override {
    const Tensor loss = error(batch);
    step.log("psnr", affine(loss.detach(), -10));
    return loss;
  }
  void validation_step(const Batch& batch, Step& step) override {
    const Tensor loss = error(batch);
    step.log("loss", loss);
    step.log("psnr", affine(loss, -10));
    step.log("late", affine(loss, 2));
    step.images("grid", batch["image"]);
  }
};

TEST(Loggers, LogTheMetricsOfATask) {
  const test::TempDir dir;
  Logging task;
  const test::RecordedRun run = test::train(task, logging_config(dir / "run", 5));
  for (const Json& line : json_lines(dir / "run", "step")) {
    EXPECT_NEAR(line.at("train_psnr").get<double>(), -10 * line.at("train_loss").get<double>(), 1e-5);
    EXPECT_TRUE(line.at("train_accuracy").is_null());
  }
  const std::vector<Row> rows = csv_rows(dir / "run");
  EXPECT_EQ(rows[0].at("val_psnr"), "");
  EXPECT_EQ(rows[0].at("train_accuracy"), "");
  EXPECT_EQ(std::stof(rows.back().at("val_psnr")), static_cast<float>(run.epochs[2].value_of("val_psnr")));
  EXPECT_EQ(rows.back().at("others"),
            fmt::format("val_late={}", static_cast<float>(run.epochs[2].value_of("val_late"))))
      << "was not known when the columns were";
  const Events events = events_in(event_files(dir / "run").at(0));
  EXPECT_EQ(events.scalars.at("val_late").size(), 3u);
  EXPECT_EQ(events.scalars.at("step/train_psnr").size(), 6u);
  EXPECT_EQ(events.pictures.at("pictures/grid"), 3);
}

TEST(Loggers, OfPhasesWriteIntoSeparateFolders) {
  const test::TempDir dir;
  Trainer trainer(logging_config(dir / "run", 10));
  for (const char* phase : {"first", "second"}) {
    test::Autoencoder task;
    (void)trainer.phase(phase).fit(task, *synthetic(test::kSmallSpec, 160, 1));
    EXPECT_EQ(csv_rows(dir / "run" / phase).size(), 6u);
    EXPECT_EQ(event_files(dir / "run" / phase).size(), 1u);
  }
  const std::vector<Json> lines = json_lines(dir / "run", "step");
  ASSERT_EQ(lines.size(), 6u);
  EXPECT_EQ(lines[5].at("phase"), "second");
}

TEST(Loggers, RunOnRank0Only) {
  const test::TempDir dir;
  for (const Strategy strategy : {Strategy::ddp, Strategy::zero1}) {
    const fs::path folder = dir / std::string(name_of(strategy));
    TrainerConfig config = logging_config(folder, 5);
    config.strategy = strategy;
    config.threads = 1;
    TrainerConfig plain = config;
    plain.run_dir.clear();
    plain.log_csv = plain.log_tensorboard = false;
    std::vector<std::uint64_t> hashes(4);
    dist::run_ranks(2, [&](dist::Transport& transport) {
      Logging task, unlogged;
      const auto rank = static_cast<std::size_t>(transport.rank());
      hashes[rank] = test::train(task, config, &transport).report.weights_hash;
      hashes[2 + rank] = test::train(unlogged, plain, &transport).report.weights_hash;
    });
    EXPECT_EQ(std::set<std::uint64_t>(hashes.begin(), hashes.end()).size(), 1u);
    EXPECT_EQ(json_lines(folder, "step").size(), 6u);
    EXPECT_EQ(csv_rows(folder).size(), 9u);
    ASSERT_EQ(event_files(folder).size(), 1u);
    const Events events = events_in(event_files(folder)[0]);
    EXPECT_EQ(events.histograms.at("weights/encoder.weight"), 3);
    EXPECT_EQ(events.histograms.contains("gradients/encoder.weight"), strategy == Strategy::ddp)
        << "of ZeRO-1, this rank has a part";
  }
}

TEST(Loggers, RejectAForeignTable) {
  const test::TempDir dir;
  fs::create_directories(dir / "run");
  for (const char* table : {"name,price\n1,2\n", "name,price\n1,2\nlast,9", "name of a note"}) {
    test::write_file(dir / "run/metrics.csv", table);
    const std::string first(table, std::strcspn(table, ",\n"));
    EXPECT_ERROR(IoError, test::run(logging_config(dir / "run", 1)), "--logger",
                 (dir / "run/metrics.csv").string(), "'" + first + "'");
    EXPECT_EQ(test::read_file(dir / "run/metrics.csv"), table);
  }
}

TEST(LoggerFlags, ChooseFilesAndSteps) {
  const auto parsed = [](std::vector<const char*> words) {
    words.insert(words.begin(), "train_x");
    return parse_flags(static_cast<int>(words.size()), words.data(), {.program = "train_x"});
  };
  const TrainerConfig usual = parsed({"--run-dir", "r"});
  EXPECT_TRUE(usual.log_json && !usual.log_csv && !usual.log_tensorboard);
  EXPECT_EQ(usual.metrics, "r/metrics.jsonl");
  EXPECT_EQ(usual.log_every, 50);
  const TrainerConfig others =
      parsed({"--run-dir", "r", "--logger", "csv,tensorboard", "--log-every", "7", "--summary"});
  EXPECT_TRUE(!others.log_json && others.log_csv && others.log_tensorboard && others.summary);
  EXPECT_EQ(others.metrics, "");
  EXPECT_EQ(others.log_every, 7);
  EXPECT_EQ(parsed({"--logger", "none", "--metrics", "m"}).metrics, "m") << "was asked for by itself";
  EXPECT_ERROR(ArgumentError, parsed({"--logger", "tensorbord"}), "--logger", "'tensorbord'",
               "'tensorboard'");
  EXPECT_ERROR(ArgumentError, parsed({"--logger", "json,none"}), "--logger", "none", "'json,none'");
  EXPECT_ERROR(ArgumentError, parsed({"--logger", "json,"}), "--logger", "json", "csv", "tensorboard", "''");
  EXPECT_ERROR(ArgumentError, parsed({"--logger", "csv", "--run-dir", "none"}), "--logger", "--run-dir");
  EXPECT_ERROR(ArgumentError, parsed({"--log-every", "0"}), "--log-every", "1", "0");
}

TEST(Histogram, HasEveryFiniteValueInItsBin) {
  std::vector<float> values;
  for (int i = 0; i <= 128; ++i) values.push_back(static_cast<float>(i));
  values.push_back(NAN);
  values.push_back(INFINITY);
  const Histogram histogram = histogram_of(values, 0.5);
  EXPECT_EQ(histogram.count, 129);
  EXPECT_EQ(histogram.min, 0);
  EXPECT_EQ(histogram.max, 64);
  EXPECT_EQ(histogram.sum, 128 * 129 / 4.0);
  EXPECT_EQ(histogram.ends[0], 1);
  EXPECT_EQ(histogram.ends[63], 64);
  EXPECT_EQ(histogram.counts[0], 3) << "0, 0.5 and 1";
  for (int bin = 1; bin < Histogram::kBins; ++bin) EXPECT_EQ(histogram.counts[bin], 2) << bin;
  const std::vector<float> same(5, 3.0f);
  EXPECT_EQ(histogram_of(same).counts[63], 5);
  EXPECT_EQ(histogram_of(std::vector<float>{NAN}).count, 0);
}

}  // namespace athanor::loggers_test
