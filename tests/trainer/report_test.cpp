#include <algorithm>
#include <cmath>
#include <csignal>
#include <fstream>
#include <limits>
#include <sstream>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/support/errors.h"
#include "tests/support/resumed_run.h"
#include "tests/support/small_training.h"
#include "tests/support/written.h"
#include "trainer/report/detail/mistakes.h"
#include "trainer/report/detail/page.h"

// report.html: what it holds, that it agrees with metrics.jsonl, and what becomes of it when a run is
// interrupted, resumed, or its files are damaged.

namespace athanor::report_test {

namespace fs = std::filesystem;
using report::Json;
using report::Record;
using report::Series;
using test::has;
using test::json_lines;

/// What the page in a folder carries.
Json carried(const fs::path& folder) {
  const std::string page = test::read_file(folder / "report.html"), begin = "id=\"record\">";
  const std::size_t from = page.find(begin) + begin.size();
  return Json::parse(page.substr(from, page.find("</script>", from) - from));
}

TrainerConfig config_in(const fs::path& folder) {
  TrainerConfig config = test::small_config();
  config.run_dir = folder;
  return config;
}

TEST(ReportSeries, KeepsTheExtremesOfAnyNumberOfSteps) {
  Series series;
  for (int step = 1; step <= 1'000'000; ++step)
    series.add(step, step == 777'777 ? 9 : step == 3 ? -9 : std::sin(step));
  const auto points = series.points();
  EXPECT_LE(points.size(), 2 * Series::kMax);
  EXPECT_GE(points.size(), Series::kMax) << "not fewer than there is room for";
  const auto at = [&](double x) {
    return std::count_if(points.begin(), points.end(),
                         [x](const report::Point& point) { return point.x == x; });
  };
  EXPECT_EQ(at(777'777), 1);
  EXPECT_EQ(at(3), 1);
  EXPECT_TRUE(std::is_sorted(points.begin(), points.end(), [](auto& a, auto& b) { return a.x < b.x; }));
  series.drop_after(500'000);
  EXPECT_LE(series.points().back().x, 500'000);
  EXPECT_GE(series.points().back().x, 490'000);
}

TEST(ReportSeries, SkipsNonFiniteAndRepeatedPoints) {
  Series series;
  series.add(1, 1);
  series.add(1, 2);
  series.add(2, std::numeric_limits<double>::quiet_NaN());
  series.add(std::numeric_limits<double>::infinity(), 1);
  series.add(3, 5);
  series.add(1e300, 5);
  ASSERT_EQ(series.points().size(), 3u);
  EXPECT_EQ(series.points()[0].y, 1);
  EXPECT_EQ(series.points()[1].x, 3);
}

TEST(Report, HasTheFiguresOfMetricsAndAllSections) {
  const test::TempDir dir;
  const test::RecordedRun run = test::run(config_in(dir.path()));
  const Json record = carried(dir.path());
  const std::vector<Json> epochs = json_lines(dir / "metrics.jsonl", "epoch");
  ASSERT_EQ(epochs.size(), 3u);
  EXPECT_EQ(record.at("epochs"), Json(epochs)) << "to the last bit";
  EXPECT_EQ(record.at("end"), json_lines(dir / "metrics.jsonl", "end").at(0));
  // Each step, as callbacks were told of it.
  const Json& norms = record.at("steps").at("grad_norm");
  ASSERT_EQ(norms.size(), run.results.size());
  for (std::size_t i = 0; i < norms.size(); ++i) {
    EXPECT_EQ(norms[i][0], run.results[i].attempted);
    EXPECT_NEAR(norms[i][1].get<double>(), run.results[i].grad_norm, 1e-5 * run.results[i].grad_norm);
  }
  const std::string page = test::read_file(dir / "report.html");
  for (const char* const id : {"curves", "times", "mistakes", "memory", "configuration", "machine"})
    EXPECT_TRUE(has(page, fmt::format("<section id=\"{}\">", id))) << id;
  for (const char* const part : {">Loss ", ">Accuracy ", ">Learning rate ", ">Gradient norm ",
                                 "Images per second", "activations", "5 classes"})
    EXPECT_TRUE(has(page, part)) << part;
  EXPECT_TRUE(has(page, fmt::format("<dd>{:.2f} %", 100 * run.report.test_accuracy)));
  EXPECT_TRUE(has(page, report::text(epochs.back(), "verdict")));
  // The matrix is that of the validation whose accuracy is reported.
  std::int64_t right = 0, images = 0;
  for (const Json& cell : record.at("evaluation").at("cells")) {
    images += cell[2].get<std::int64_t>();
    if (cell[0] == cell[1]) right += cell[2].get<std::int64_t>();
  }
  EXPECT_EQ(images, 50);
  EXPECT_EQ(static_cast<double>(right) / 50, run.report.test_accuracy);
  EXPECT_TRUE(has(page, "<img src=\"data:image/png;base64,iVBORw0KGgo"));
}

TEST(Report, ChangesNoBitOfTheRunAndCanBeSwitchedOff) {
  const test::TempDir dir;
  TrainerConfig on = config_in(dir / "on"), off = config_in(dir / "off"), fast = config_in(dir / "fast");
  off.report = false;
  fast.fast_dev_run = true;
  const test::RecordedRun with = test::run(on), without = test::run(off);
  test::run(fast);
  EXPECT_EQ(with.report.weights_hash, without.report.weights_hash);
  EXPECT_EQ(with.report.host_syncs, without.report.host_syncs) << "it waits for nothing that is counted";
  EXPECT_EQ(with.weights, without.weights);
  EXPECT_TRUE(fs::exists(dir / "on/report.html"));
  EXPECT_FALSE(fs::exists(dir / "off/report.html"));
  EXPECT_FALSE(fs::exists(dir / "fast/report.html"));
}

TEST(Report, ShowsValidationsWithinEpochs) {
  const test::TempDir dir;
  TrainerConfig config = config_in(dir.path());
  config.epochs = 1;
  config.val_every = {4, false};
  test::run(config);
  const std::vector<Json> validations = json_lines(dir / "metrics.jsonl", "validation");
  ASSERT_EQ(validations.size(), 2u);
  const Json points = carried(dir.path()).at("steps").at("val_loss");
  ASSERT_EQ(points.size(), 3u) << "and that of the end";
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(points[i][0], validations[i].at("step"));
    EXPECT_NEAR(points[i][1].get<double>(), validations[i].at("val_loss").get<double>(), 1e-5);
  }
}

TEST(Report, CountsSkippedSteps) {
  const test::TempDir dir;
  TrainerConfig config = config_in(dir.path());
  config.loss_scaling = LossScaling{};
  const test::RecordedRun run = test::run(config, 160, [](int call, const Tensor& logits) {
    if (call == 7) logits.data<float>()[0] = std::numeric_limits<float>::infinity();
  });
  ASSERT_EQ(run.report.steps.skipped(), 1);
  const Json skipped = carried(dir.path()).at("steps").at("skipped_steps");
  EXPECT_EQ(skipped.at(5), (Json{6, 0}));
  EXPECT_EQ(skipped.at(6), (Json{7, 1}));
  const std::string page = test::read_file(dir / "report.html");
  EXPECT_TRUE(has(page, "Skipped steps so far") && has(page, "<small>1 skipped</small>") &&
              has(page, ">Loss scale "));
}

TEST(Report, IsWholeWhenARunIsInterruptedAndGoesOnWithItsCurves) {
  const test::TempDir dir;
  const auto train = [&](const std::string& folder, const std::string& resume,
                         const test::OnStep& on_step = {}) {
    TrainerConfig config = test::resume_config();
    config.run_dir = dir / folder;
    config.resume = resume;
    return test::train(config, on_step);
  };
  train("straight", "");
  const Json straight = carried(dir / "straight");

  train("signal", "", [](Trainer&, const StepInfo& step) {
    if (step.attempted == 7) std::raise(SIGINT);
  });
  const std::string page = test::read_file(dir / "signal/report.html");
  EXPECT_TRUE(has(page, "SIGINT") && page.ends_with("</html>\n"));
  EXPECT_EQ(carried(dir / "signal").at("epochs").size(), 1u);

  struct Killed : std::runtime_error {
    Killed() : std::runtime_error("<killed>") {}
  };
  EXPECT_THROW(train("error", "",
                     [](Trainer&, const StepInfo& step) {
                       if (step.attempted == 8) throw Killed();
                     }),
               Killed);
  EXPECT_TRUE(has(test::read_file(dir / "error/report.html"), "&lt;killed&gt;"));

  fs::copy(dir / "error", dir / "lost", fs::copy_options::recursive);
  fs::remove(dir / "lost/report.html");
  for (const char* const folder : {"signal", "error", "lost"}) {
    SCOPED_TRACE(folder);
    train(folder, "auto");
    const Json resumed = carried(dir / folder);
    ASSERT_EQ(resumed.at("epochs").size(), 2u);
    for (std::size_t i = 0; i < 2; ++i)
      for (const char* const key : {"epoch", "train_loss", "val_loss", "val_accuracy", "weights_hash"})
        EXPECT_EQ(resumed.at("epochs")[i].at(key), straight.at("epochs")[i].at(key)) << key;
    EXPECT_EQ(resumed.at("ended"), "");
    if (std::string(folder) == "lost") continue;  // metrics.jsonl has no steps
    for (const char* const key : {"learning_rate", "grad_norm", "loss_scale"})
      EXPECT_EQ(resumed.at("steps").at(key), straight.at("steps").at(key))
          << key << ": none twice, none missing";
  }
}

TEST(Report, AFullDiskIsAWarning) {
  const test::TempDir dir;
  fs::create_directories(dir / "report.html/in the way");
  const test::RecordedRun run = test::run(config_in(dir.path()));
  EXPECT_EQ(run.report.steps.applied, 30);
  EXPECT_TRUE(test::has_note(run, {"warning", "report"}));
  EXPECT_EQ(
      std::count_if(run.notes.begin(), run.notes.end(), [](auto& note) { return has(note, "warning"); }), 1);
}

// A page that is made anew of metrics.jsonl and config.json has the same figures; what they do not hold, the
// page that is there brings along.
TEST(Report, CanBeRebuiltFromTheFilesOfTheRun) {
  const test::TempDir dir;
  TrainerConfig config = config_in(dir.path());
  config.flags = {{"--lr", "0.1", "flag"}, {"--<b>", "a & \"b\"", "default"}};
  test::run(config);
  const Json before = carried(dir.path());
  Record again = report::read_runs(dir.path()).at(0);
  EXPECT_EQ(json_of(again).at("epochs"), before.at("epochs"));
  EXPECT_EQ(json_of(again).at("steps"), before.at("steps"));
  const std::string page = page_of(again);
  EXPECT_TRUE(has(page, "<code>--lr</code></th><td>0.1</td>"));
  EXPECT_TRUE(has(page, "<code>--&lt;b&gt;</code></th><td>a &amp; &quot;b&quot;</td>"));
  fs::remove(dir / "report.html");
  again = report::read_runs(dir.path()).at(0);
  EXPECT_EQ(json_of(again).at("epochs"), before.at("epochs"));
  EXPECT_EQ(again.end, before.at("end"));
  EXPECT_TRUE(has(page_of(again), ">Learning rate ")) << "of each epoch's end";
}

Json epoch(int number, double loss, int steps) {
  return {{"event", "epoch"},
          {"epoch", number},
          {"val_loss", loss},
          {"applied_steps", steps},
          {"skipped_steps", 0}};
}
void write_lines(const fs::path& folder, const std::vector<Json>& lines) {
  std::string text;
  for (const Json& line : lines) text += line.dump() + '\n';
  test::write_file(folder / "metrics.jsonl", text);
}

TEST(Report, ReadsStepsResumesAndPhasesOfMetrics) {
  const test::TempDir dir;
  const auto step = [](int number, double loss, const char* result) {
    return Json{{"event", "step"}, {"step", number}, {"epoch", 1}, {"train_loss", loss}, {"result", result}};
  };
  write_lines(dir / "resumed", {step(5, 2, "applied"),
                                step(10, 1.5, "skipped_overflow"),
                                epoch(1, 0.5, 10),
                                step(15, 1.2, "applied"),
                                epoch(2, 0.9, 20),
                                {{"event", "resume"}, {"attempted_steps", 10}},
                                step(15, 1, "applied"),
                                epoch(2, 0.4, 20)});
  Record run = report::read_runs(dir / "resumed").at(0);
  ASSERT_EQ(run.epochs.size(), 2u);
  EXPECT_EQ(run.epochs[1].at("val_loss"), 0.4);
  EXPECT_EQ(json_of(run).at("steps").at("train_loss"), (Json{{5, 2}, {10, 1.5}, {15, 1}}));
  EXPECT_EQ(json_of(run).at("steps").at("skipped_steps"), (Json{{5, 0}, {10, 1}, {15, 1}}));
  EXPECT_TRUE(has(page_of(run), "Training loss by step"));

  write_lines(dir / "within", {epoch(1, 0.5, 10),
                               {{"event", "validation"}, {"step", 15}, {"epoch", 2}, {"val_loss", 0.45}},
                               epoch(2, 0.4, 20)});
  run = report::read_runs(dir / "within").at(0);
  EXPECT_EQ(run.epochs.size(), 2u);
  EXPECT_EQ(json_of(run).at("steps").at("val_loss"), (Json{{15, 0.45}, {20, 0.4}}));
  EXPECT_TRUE(has(page_of(run), "Validation loss by step"));

  write_lines(dir / "anew", {epoch(1, 0.5, 10), epoch(2, 0.4, 20), epoch(1, 0.7, 10)});
  EXPECT_EQ(report::read_runs(dir / "anew").at(0).epochs.size(), 1u) << "another run, in the same folder";

  Json teacher = epoch(1, 0.5, 10), student = epoch(1, 0.3, 10);
  teacher["phase"] = "teacher", student["phase"] = "student";
  write_lines(dir / "phases", {teacher, student});
  const auto runs = report::read_runs(dir / "phases");
  ASSERT_EQ(runs.size(), 2u);
  EXPECT_TRUE(runs[0].name.ends_with("phases, teacher") && runs[1].name.ends_with("phases, student"));
}

TEST(Report, ComparesRunsAndMarksWhatDiffers) {
  const test::TempDir dir;
  for (const char* const name : {"a", "b"}) {
    const bool first = *name == 'a';
    write_lines(dir / name,
                {epoch(1, first ? 0.5 : 0.25, 10),
                 {{"event", "end"}, {"test_loss", first ? 0.5 : 0.25}, {"stopped_by", "epochs"}}});
    const Json flags{{"--lr", {{"value", first ? "0.1" : "0.2"}, {"from", "flag"}}},
                     {"--seed", {{"value", "0"}, {"from", "default"}}}};
    test::write_file(dir / name / "config.json", Json{{"program", "p"}, {"flags", flags}}.dump());
  }
  std::vector<Record> runs{report::read_runs(dir / "a").at(0), report::read_runs(dir / "b").at(0)};
  runs[1].name = "<b>\xff\x1b[31m";
  const std::string page = comparison_of(runs);
  EXPECT_TRUE(has(
      page, "<tr class=\"differs\"><th scope=\"row\"><code>--lr</code></th><td>0.1</td><td>0.2</td></tr>"));
  EXPECT_FALSE(has(page, "<tr class=\"differs\"><th scope=\"row\"><code>--seed"));
  EXPECT_TRUE(has(page, "<code>--seed</code></th><td>0</td>"));
  EXPECT_TRUE(has(page, "<tr><th scope=\"row\">loss</th><td>0.5</td><td><b>0.25</b></td></tr>"));
  EXPECT_TRUE(has(page, "&lt;b&gt;\\xff\\x1b[31m") && !has(page, "<b>\\xff") && !has(page, "\x1b"));
}

TEST(Report, OneEpochIsARowAndNoChartOfADot) {
  const test::TempDir dir;
  write_lines(dir.path(), {epoch(1, 0.5, 10)});
  const std::string page = page_of(report::read_runs(dir.path()).at(0));
  EXPECT_FALSE(has(page, "<figure class=\"chart\">"));
  EXPECT_TRUE(has(page, "<tr><th scope=\"row\">loss</th><td>-</td><td>0.5</td><td>0.5 in epoch 1</td></tr>"));
}

TEST(Report, FiguresOfClassesAreATable) {
  const test::TempDir dir;
  std::vector<Json> epochs{epoch(1, 0.5, 10), epoch(2, 0.4, 20)};
  for (Json& one : epochs) {
    for (int c = 0; c < 17; ++c) one[fmt::format("val_cells_iou/{}", c)] = 0.5 * one.at("epoch").get<int>();
    for (int c = 0; c < 17; ++c) one[fmt::format("val_of_my_own_{}", c)] = 1;
    one["val_threshold/0"] = 0.5;
  }
  write_lines(dir.path(), epochs);
  const std::string page = page_of(report::read_runs(dir.path()).at(0));
  std::size_t charts = 0;
  for (std::size_t at = page.find("<figure class=\"chart\">"); at != page.npos; ++charts)
    at = page.find("<figure class=\"chart\">", at + 1);
  EXPECT_LT(charts, 12u);
  EXPECT_TRUE(has(page, "<figcaption>Loss"));
  EXPECT_FALSE(has(page, "<figcaption>cells_iou"));
  EXPECT_FALSE(has(page, "<th scope=\"row\">threshold/0")) << "chosen, not measured";
  EXPECT_TRUE(
      has(page, "<tr><th scope=\"row\">cells_iou/16</th><td>-</td><td>1</td><td>1 in epoch 2</td></tr>"));
}

TEST(Report, DamagedFilesAreNotedOnThePage) {
  const test::TempDir dir;
  EXPECT_ERROR(IoError, report::read_runs(dir / "nowhere"), "report", (dir / "nowhere").string(),
               "metrics.jsonl", "report.html");
  test::write_file(dir / "empty/metrics.jsonl", "");
  const Record empty = report::read_runs(dir / "empty").at(0);
  ASSERT_EQ(empty.notes.size(), 1u) << "nothing has been measured";
  EXPECT_TRUE(has(page_of(empty), empty.notes[0]));
  // Lines that are none, and such of which every value is of another type than it should be.
  const std::string junk("\x00\xff{\"event\":", 11);
  test::write_file(
      dir / "bent/metrics.jsonl",
      junk + "\n[1]\n" + epoch(1, 0.5, 10).dump() + "\n" +
          R"({"event":"epoch","epoch":"x"})"
          "\n"
          R"({"event":"epoch","epoch":2,"val_loss":null,"times_s":3,"verdict":[]})"
          "\n"
          R"({"event":7})"
          "\n"
          R"({"event":"step","step":{}})"
          "\n"
          R"({"event":"end","wall_s":"long","stopped_by":{}})"
          "\n"
          R"({"event":"step","step":1e300,"grad_norm":1e300})"
          "\n"
          R"({"event":"epoch","epoch":3,"val_loss":1e308,"applied_steps":-1e308,"skipped_steps":0})"
          "\n");
  test::write_file(dir / "bent/config.json", "{\"flags\": ");
  const Json page_record{{"epochs", {1, "x", {{"epoch", 1}}}},
                         {"steps", {{"a", {{"x", 1}, 5, {1, 2, 3}}}, {"b", 7}}},
                         {"facts", 3},
                         {"times", {{"data", "x"}}},
                         {"notes", {1, {}}},
                         {"evaluation", {{"names", {"a", "b"}}, {"cells", {{0, 9, 1}}}}}};
  test::write_file(dir / "bent/report.html",
                   "<script type=\"application/json\" id=\"record\">" + page_record.dump() + "</script>");
  const Record bent = report::read_runs(dir / "bent").at(0);
  const std::string page = page_of(bent);
  const auto noted = [&](std::initializer_list<std::string_view> values) {
    return std::any_of(bent.notes.begin(), bent.notes.end(),
                       [&](const std::string& note) { return test::names(note, values) && has(page, note); });
  };
  EXPECT_TRUE(noted({"2", "metrics.jsonl"}) && noted({"config.json"}));
  EXPECT_TRUE(page.ends_with("</html>\n"));
}

TEST(Report, WhatUsersNameIsEscapedAndPicturesAreOnlyPictures) {
  Json evaluation{{"images", 2},
                  {"of", 2},
                  {"top1", 0.5},
                  {"names", {"<script>", "b\"c"}},
                  {"cells", {{0, 1, 1}, {1, 1, 1}}}};
  Json mistake{{"sample", 0},
               {"file", "x\"><img>"},
               {"actual", 0},
               {"predicted", 1},
               {"probability", 0.9},
               {"loss", 3},
               {"picture", "javascript:alert(1)"}};
  evaluation["mistakes"] = {mistake};
  std::string html = report::mistakes_section(evaluation);
  EXPECT_TRUE(has(html, "<b>&lt;script&gt;</b>") && has(html, "x&quot;&gt;&lt;img&gt;"));
  EXPECT_FALSE(has(html, "<img") || has(html, "javascript"));
  evaluation["mistakes"][0]["picture"] = "data:image/png;base64,AA\" onload=\"x";
  EXPECT_FALSE(has(report::mistakes_section(evaluation), "<img"));
  evaluation["cells"] = {{0, 2, 1}};
  EXPECT_EQ(report::mistakes_section(evaluation), "") << "a class that there is not";
  Record record;
  record.name = "</script><script>alert(1)</script>";
  html = page_of(record);
  EXPECT_FALSE(has(html, "alert(1)</script>"));
  EXPECT_TRUE(has(html, "\\u003c/script>"));
}

TEST(Report, OfManyClassesThePairsAreNamed) {
  Json names = Json::array();
  for (int i = 0; i < 100; ++i) names.push_back(fmt::format("class {}", i));
  const Json evaluation{{"images", 3},
                        {"of", 9},
                        {"names", names},
                        {"cells", {{7, 8, 2}, {1, 1, 1}}},
                        {"mistakes", Json::array()}};
  const std::string html = report::mistakes_section(evaluation);
  EXPECT_TRUE(has(html, "<th scope=\"row\">class 7</th><td>class 8</td><td>2</td>")) << html;
  EXPECT_TRUE(test::holds(html, "9"));
}

}  // namespace athanor::report_test
