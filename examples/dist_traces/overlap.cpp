#include <algorithm>
#include <array>
#include <chrono>
#include <map>
#include <thread>

#include "autograd/engine.h"
#include "autograd/node.h"
#include "autograd/reduce.h"
#include "dist/ddp.h"
#include "dist/transports/thread_transport.h"
#include "examples/dist_traces/traces.h"
#include "nn/module.h"
#include "optim/step.h"

// Times of computation and of sending buckets in a backward pass, for the three kinds of overlap: rank 0 of
// two threads. Layers sleep instead of computing, all for the same time. So the kinds differ in what advances
// the messages and in their delay, but not in other work of the cores.

namespace athanor::examples {
namespace {

using Clock = std::chrono::steady_clock;
using dist::Overlap;

constexpr int kLayers = 6, kSteps = 9;
constexpr std::int64_t kElements = 65'536;  // of a layer, and of its bucket
constexpr std::size_t kBucketBytes = kElements * sizeof(float);
constexpr std::chrono::milliseconds kLayer{20}, kDelay{8};

struct Span {
  double begin_ms = 0, end_ms = 0;
};
/// One step as seen on rank 0; times from the beginning of the backward pass.
struct Timeline {
  std::vector<Span> layers;   ///< the last layer first
  std::vector<Span> buckets;  ///< in sending order
  Span agreement;             ///< on the norm and on overflow, after the last bucket
  double reduced_ms = 0;      ///< when reduce() returned
};

struct Passed {
  Clock::time_point begin, end;
};

/// Records when the first message of each collective begins and its last one ends.
class Clocked final : public dist::Transport {
 public:
  explicit Clocked(dist::Transport& below) : Transport(below.rank(), below.world_size()), below_(below) {}
  dist::Request isend(int to, dist::Tag tag, std::span<const std::byte> bytes) override {
    return begun(below_.isend(to, tag, bytes), tag);
  }
  dist::Request irecv(int from, dist::Tag tag, std::span<std::byte> bytes) override {
    return begun(below_.irecv(from, tag, bytes), tag);
  }
  bool test(dist::Request& request) override {
    const std::int32_t slot = request.slot;
    if (!below_.test(request)) return false;
    if (slot >= 0) times.at(tags_.at(slot)).second = Clock::now();
    return true;
  }
  void cancel(dist::Request& request) noexcept override { below_.cancel(request); }

  std::map<dist::Tag, std::pair<Clock::time_point, Clock::time_point>> times;

 private:
  dist::Request begun(dist::Request request, dist::Tag tag) {
    tags_[request.slot] = tag;
    times.try_emplace(tag, Clock::now(), Clock::now());
    return request;
  }
  dist::Transport& below_;
  std::map<std::int32_t, dist::Tag> tags_;
};

/// A layer that only takes time: its backward pass sleeps, then returns gradients of its input and weight.
class Slept final : public nn::Module {
 public:
  explicit Slept(std::vector<Passed>& passed) : passed_(passed) {
    weight_ = register_parameter("weight", Tensor::zeros({kElements}));
  }
  Tensor forward(const Tensor& x) override {
    return record("slept", x.detach(), {x, weight_}, [this](const Tensor& dy, Grads& dx) {
      const Clock::time_point begin = Clock::now();
      std::this_thread::sleep_until(begin + kLayer);
      passed_.push_back({begin, Clock::now()});
      dx[0] = dy;
      dx[1] = Tensor::zeros({kElements});
    });
  }

 private:
  Tensor weight_;
  std::vector<Passed>& passed_;
};

class Chain final : public nn::Module {
 public:
  Chain() {
    for (int i = 0; i < kLayers; ++i) {
      layers.push_back(std::make_unique<Slept>(passed));
      register_module(fmt::format("layer{}", i), *layers.back());
    }
  }
  Tensor forward(const Tensor& x) override {
    passed.clear();
    Tensor y = x;
    for (const auto& layer : layers) y = (*layer)(y);
    return y;
  }
  std::vector<Passed> passed;  ///< of the last backward pass, the last layer first
  std::vector<std::unique_ptr<Slept>> layers;
};

/// The median of kSteps steps, by their ends.
Timeline run(Overlap overlap) {
  std::vector<Timeline> timelines;
  dist::run_ranks(
      2,
      [&](dist::Transport& below) {
        Clocked transport(below);
        Chain net;
        ParameterArena arena(
            net.parameters(), {},
            dist::bucketed({}, 2, {.bucket_bytes = kBucketBytes, .first_bucket_bytes = kBucketBytes}));
        dist::Communicator comm(transport);
        dist::Ddp ddp(arena, comm, {.overlap = overlap});
        StepBuffer step;
        const Tensor x = Tensor::zeros({1});
        for (int i = 0; i <= kSteps; ++i) {  // skips the first, which allocates memory
          arena.zero_grad();
          const Tensor loss = sum(net(x));
          comm.run(*comm.barrier());
          transport.times.clear();
          const Clock::time_point begin = Clock::now();
          backward_scaled(loss, step);
          ddp.reduce(step);
          const Clock::time_point end = Clock::now();
          if (i == 0 || transport.rank() != 0) continue;
          Timeline& timeline = timelines.emplace_back();
          const auto ms = [&](Clock::time_point at) {
            return std::chrono::duration<double, std::milli>(at - begin).count();
          };
          for (const auto& [from, to] : net.passed) timeline.layers.push_back({ms(from), ms(to)});
          for (const auto& [tag, times] : transport.times) {
            const Span span{ms(times.first), ms(times.second)};
            if (timeline.buckets.size() < ddp.layout().buckets().size())
              timeline.buckets.push_back(span);
            else
              timeline.agreement = span;
          }
          timeline.reduced_ms = ms(end);
        }
      },
      {.delay = kDelay, .seed = 2});
  std::ranges::nth_element(timelines, timelines.begin() + kSteps / 2, {}, &Timeline::reduced_ms);
  return timelines[kSteps / 2];
}

nlohmann::json times(const std::vector<Span>& spans) {
  nlohmann::json ends;
  for (const Span& span : spans) ends.push_back({span.begin_ms, span.end_ms});
  return ends;
}

}  // namespace

nlohmann::json overlap_trace() {
  nlohmann::json kinds;
  for (const auto& [overlap, name] :
       {std::pair(Overlap::none, "none"), {Overlap::pumped, "pumped"}, {Overlap::thread, "thread"}}) {
    const Timeline timeline = run(overlap);
    kinds.push_back({{"name", name},
                     {"layers", times(timeline.layers)},
                     {"buckets", times(timeline.buckets)},
                     {"agreement", times({timeline.agreement})},
                     {"reduced", timeline.reduced_ms}});
  }
  return {{"layer_ms", kLayer.count()}, {"delay_ms", kDelay.count()}, {"steps", kSteps}, {"kinds", kinds}};
}

}  // namespace athanor::examples
