// --profile: which ops and layers are told of, what is counted, and the trace that is written.
#include "trainer/profile/profiler.h"

#include <algorithm>
#include <fstream>
#include <map>
#include <set>
#include <thread>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "autograd/engine.h"
#include "autograd/op_observer.h"
#include "autograd/reduce.h"
#include "nn/conv_norm.h"
#include "tensor/base/trace.h"
#include "tests/support/errors.h"
#include "tests/support/ranks_run.h"

namespace athanor::profiler_test {

using namespace test;
using Json = nlohmann::json;

/// Two levels of modules, a residual, and layers that one op computes.
class Block final : public nn::Module {
 public:
  Block() {
    register_module("conv", conv.conv);
    register_module("norm", conv.norm);
  }
  Tensor forward(const Tensor& x) override { return conv(x, x); }
  nn::ConvNorm conv{4, 4, 3, {.padding = 1, .bias = false}, {.activation = Activation::relu}};
};

class Deep final : public nn::Module {
 public:
  Deep() {
    register_module("stem", stem);
    register_module("block", block);
    register_module("out", out);
    initialize(1);
  }
  Tensor forward(const Tensor& x) override { return out(flatten(block(stem(x)))); }
  nn::Conv2d stem{1, 4, 3, {.padding = 1}};
  Block block;
  nn::Linear out{4 * 16, 5};
};

TrainerConfig profiled(Profile kind) {
  TrainerConfig config = resume_config();
  config.profile = kind;
  config.accumulate = 1;
  config.early_stop = {};
  return config;
}

/// Takes the totals while the run lives.
struct Profiled {
  RecordedRun run;
  std::string text;
};

Profiled train_deep(const TrainerConfig& config) {
  Deep model;
  Trainer trainer(config);
  Profiled result;
  result.run = record(trainer, model, *synthetic(kResumeSpec, 75, 1), *synthetic(kResumeSpec, 30, 2));
  result.text = trainer.profile();
  return result;
}

std::vector<std::string> words_of_row(const std::string& text, const std::string& first,
                                      const std::string& second = "") {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream stream(line);
    std::vector<std::string> words;
    for (std::string word; stream >> word;) words.push_back(word);
    if (!words.empty() && words[0] == first && (second.empty() || (words.size() > 1 && words[1] == second)))
      return words;
  }
  return {};
}

// Ops ------------------------------------------------------------------------------------------------------

TEST(Profiler, CountsOnlyTheOpsOfTraining) {
  const Profiled simple = train_deep(profiled(Profile::simple));
  // 9 batches of 8 an epoch, two epochs; none of validation, which has as many ops.
  ASSERT_FALSE(words_of_row(simple.text, "conv2d", "forward").empty()) << simple.text;
  EXPECT_EQ(words_of_row(simple.text, "conv2d", "forward")[2], "36") << simple.text;
  EXPECT_EQ(words_of_row(simple.text, "conv2d", "backward")[2], "36") << simple.text;
  EXPECT_EQ(words_of_row(simple.text, "batch_norm", "forward")[2], "18") << simple.text;
  EXPECT_EQ(words_of_row(simple.text, "linear", "backward")[2], "18") << simple.text;
  EXPECT_TRUE(has_line(simple.text, {"roof", "GB/s", "GFLOP/s"}));
  EXPECT_EQ(simple.text.find("layer "), std::string::npos) << simple.text;
  const RecordedRun plain = train_deep(profiled(Profile::none)).run;
  expect_same_end(simple.run, plain);
  EXPECT_EQ(train_deep(profiled(Profile::none)).text, "");
}

/// Reading an image takes 5 ms, or longer on a busy machine: `took` counts it.
class Slow final : public ImageDataset {
 public:
  explicit Slow(const Dataset& of) : of_(of) {}
  mutable double took_ms = 0;
  std::int64_t size() const override { return of_.size(); }
  const ImageSpec& spec() const override { return of_.spec(); }
  std::int64_t read(std::int64_t index, std::span<std::uint8_t> pixels) const override {
    const RunClock clock;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    const std::int64_t label = of_.read(index, pixels);
    took_ms += 1e3 * clock.seconds();
    return label;
  }

 private:
  const Dataset& of_;
};

// The first op of a pass is a convolution.
TEST(Profiler, WaitingForDataIsNoPartOfAnOp) {
  TrainerConfig config = profiled(Profile::simple);
  config.workers = 0;
  config.epochs = 1;
  const auto images = synthetic(kResumeSpec, 40, 1);
  Deep model;
  Trainer trainer(config);
  const Slow slow(*images);
  const RunClock clock;
  (void)record(trainer, model, slow, *images);
  const double others_ms = 1e3 * clock.seconds() - slow.took_ms;
  const std::vector<std::string> row = words_of_row(trainer.profile(), "conv2d", "forward");
  ASSERT_GT(row.size(), 3u) << trainer.profile();
  EXPECT_LT(std::stod(row[3]), others_ms) << "images were read in " << slow.took_ms << " ms more:\n"
                                          << trainer.profile();
}

/// Keeps what it is told.
class Recorder final : public OpObserver {
 public:
  struct Call {
    std::string op, layer;
    bool backward;
    double elements;
  };
  void recorded(const OpCall& op, const Tensor& y, std::span<const Input>) override {
    const char* const layer = LayerScope::innermost();
    calls.push_back({op.name, layer ? layer : "", false, static_cast<double>(y.numel())});
  }
  void backward_began(const char*, const char*) override { ++begun; }
  void backward_ended(const char* op, const char* layer, const Tensor& dy, std::span<const Tensor>) override {
    calls.push_back({op, layer ? layer : "", true, static_cast<double>(dy.numel())});
  }
  void layer_began(const char* layer) override { layers.push_back(std::string("+") + layer); }
  void layer_ended(const char* layer) override { layers.push_back(std::string("-") + layer); }

  std::vector<Call> calls;
  std::vector<std::string> layers;
  int begun = 0;
};

TEST(OpObserver, KnowsTheLayerOfAnOpAndOfItsGradient) {
  Deep model;
  model.name_layers(true);
  Recorder recorded;
  {
    const ObserveScope observing(recorded);
    backward(sum(model(Tensor::zeros({2, 4, 4, 1}))));
  }
  const auto layer_of = [&](const std::string& op, bool backward, std::size_t nth = 0) {
    for (const Recorder::Call& call : recorded.calls) {
      if (call.op == op && call.backward == backward && nth-- == 0) return call.layer;
    }
    return std::string("?");
  };
  EXPECT_EQ(layer_of("conv2d", false, 0), "stem");
  EXPECT_EQ(layer_of("conv2d", false, 1), "block.conv");
  EXPECT_EQ(layer_of("batch_norm", false), "block.norm");
  EXPECT_EQ(layer_of("linear", false), "out");
  EXPECT_EQ(layer_of("conv2d", true, 0), "block.conv");  // the later first
  EXPECT_EQ(layer_of("conv2d", true, 1), "stem");
  EXPECT_EQ(layer_of("batch_norm", true), "block.norm");
  EXPECT_EQ(layer_of("sum", true), "");
  EXPECT_EQ(recorded.layers,
            (std::vector<std::string>{"+stem", "-stem", "+block", "+block.conv", "-block.conv", "+block.norm",
                                      "-block.norm", "-block", "+out", "-out"}));
  const std::size_t before = recorded.calls.size();
  (void)model(Tensor::zeros({2, 4, 4, 1}));
  EXPECT_EQ(recorded.calls.size(), before);
  model.name_layers(false);
  {
    const ObserveScope observing(recorded);
    (void)model(Tensor::zeros({2, 4, 4, 1}));
  }
  EXPECT_EQ(recorded.calls.back().layer, "");
}

TEST(ProfileText, ComparesFiguresWithTheRoof) {
  std::vector<OpTotal> totals{{"conv2d", "a", false, 10, 0.5, 1e9, 40e9},
                              {"conv2d", "b", false, 10, 0.5, 1e9, 40e9},
                              {"relu", "a", true, 4, 1.0, 8e9, 0}};
  const std::string text = text_by_op(totals, {.bytes_per_s = 10e9, .flops_per_s = 100e9});
  EXPECT_EQ(words_of_row(text, "conv2d"),
            (std::vector<std::string>{"conv2d", "forward", "20", "1000.0", "50000.0", "50.0", "2.0", "80.0",
                                      "80", "%", "compute"}))
      << text;
  EXPECT_EQ(words_of_row(text, "relu"),
            (std::vector<std::string>{"relu", "backward", "4", "1000.0", "250000.0", "50.0", "8.0", "-", "80",
                                      "%", "memory"}))
      << text;
  const std::string layers = text_by_layer(totals);
  EXPECT_EQ(words_of_row(layers, "a"), (std::vector<std::string>{"a", "10", "500.0", "1000.0", "75.0"}))
      << layers;
  EXPECT_EQ(words_of_row(layers, "b"), (std::vector<std::string>{"b", "10", "500.0", "0.0", "25.0"}))
      << layers;
}

TEST(Profiler, AdvancedNamesLayers) {
  const std::string text = train_deep(profiled(Profile::advanced)).text;
  for (const char* const layer : {"stem", "block.conv", "block.norm", "out"}) {
    ASSERT_EQ(words_of_row(text, layer).size(), 5u) << layer << text;
    EXPECT_EQ(words_of_row(text, layer)[1], "18") << layer;
  }
}

// A trace --------------------------------------------------------------------------------------------------

class ProfileTrace : public ResumeTest {
 protected:
  static Json events_of(const std::filesystem::path& path) {
    std::ifstream file(path);
    return Json::parse(file)["traceEvents"];
  }
  /// Spans of a thread lie within each other or side by side.
  static void expect_nested(const Json& events) {
    std::map<std::pair<int, int>, std::vector<std::pair<double, double>>> threads;
    for (const Json& event : events) {
      if (event["ph"] != "X") continue;
      const double begin = event["ts"], length = event["dur"];
      threads[{event["pid"], event["tid"]}].push_back({begin, begin + length});
    }
    for (auto& [thread, spans] : threads) {
      std::sort(spans.begin(), spans.end(), [](const auto& a, const auto& b) {
        return a.first != b.first ? a.first < b.first : a.second > b.second;
      });
      std::vector<double> open;
      for (const auto& [begin, end] : spans) {
        while (!open.empty() && open.back() <= begin + 2e-3) open.pop_back();  // printed to the nanosecond
        EXPECT_TRUE(open.empty() || end <= open.back() + 2e-3)
            << "thread " << thread.second << " at " << begin;
        open.push_back(end);
      }
    }
  }
};

TEST_F(ProfileTrace, HoldsStepsLayersReadsAndArrows) {
  TrainerConfig config = profiled(Profile::trace);
  config.run_dir = dir_.path();
  config.workers = 2;
  const Profiled traced = train_deep(config);
  EXPECT_NE(traced.text.find("trace.json"), std::string::npos) << traced.text;
  const Json events = events_of(dir_ / "trace.json");
  expect_nested(events);
  std::map<std::string, int> spans, categories;
  std::map<std::string, Json> begins, ends;
  std::map<int, std::string> threads;
  for (const Json& event : events) {
    if (event["ph"] == "X") {
      ++spans[event["name"]];
      ++categories[event.value("cat", "")];
    }
    if (event["ph"] == "s") begins[event["id"]] = event;
    if (event["ph"] == "f") ends[event["id"]] = event;
    if (event["name"] == "thread_name") threads[event["tid"]] = event["args"]["name"];
  }
  EXPECT_EQ(spans["step"], 18);
  EXPECT_EQ(spans["block.conv"], 36);  // forward and backward
  EXPECT_EQ(spans["conv2d"], 72);
  EXPECT_GE(spans["read"], 18);
  EXPECT_EQ(categories["layer backward"] > 0, true);
  EXPECT_EQ(begins.size(), 18u);  // a batch, read by a thread of the loader, and used by this one
  for (const auto& [id, begin] : begins) {
    ASSERT_TRUE(ends.count(id)) << id;
    EXPECT_EQ(threads[begin["tid"]].substr(0, 6), "loader");
    EXPECT_EQ(threads[ends[id]["tid"]], "training");
    EXPECT_LE(begin["ts"], ends[id]["ts"]);
  }
  // What an op belongs to is said.
  const auto conv = std::find_if(events.begin(), events.end(), [](const Json& event) {
    return event["name"] == "conv2d" && event["cat"] == "backward";
  });
  ASSERT_NE(conv, events.end());
  EXPECT_EQ((*conv)["args"]["layer"], "block.conv");
}

TEST_F(ProfileTrace, HasACollectiveOfEachRank) {
  TrainerConfig config = with(ranks_config(), Strategy::ddp);
  config.max_steps = 4;
  config.profile = Profile::trace;
  config.run_dir = dir_.path();
  // Ranks that are threads share the ring, which processes do not.
  const auto runs = train_ranks(2, config);
  expect_alike(runs);
  std::set<int> ranks;
  int collectives = 0;
  for (const Json& event : events_of(dir_ / "trace.json")) {
    ranks.insert(event["pid"].get<int>());
    collectives += event.value("cat", "") == "collective";
  }
  EXPECT_EQ(ranks, (std::set<int>{0, 1}));
  EXPECT_GT(collectives, 4);
}

// Opening --------------------------------------------------------------------------------------------------

TEST(Bottleneck, NamesOpening) {
  const Times times{.data = 0.3, .forward = 0.3, .backward = 0.4};
  RunFacts facts{.cores = 8};
  facts.loader = {.waits = {.data_s = 0.3, .opening_s = 0.28}, .busy = 0.99, .workers = 2, .threads = 2};
  const Bottleneck slow = find_bottleneck(times, facts);
  EXPECT_EQ(slow.bound_by, "data");
  EXPECT_TRUE(names(slow.line, {"30 %", "28 %", "2 workers", "0.28 s", "athanor pack"}));
  EXPECT_FALSE(holds(slow.line, "--workers")) << slow.line;
  facts.loader.waits.opening_s = 0.01;
  EXPECT_TRUE(names(find_bottleneck(times, facts).line, {"--workers"}));
}

}  // namespace athanor::profiler_test
