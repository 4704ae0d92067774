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
#include "examples/common/svg.h"
#include "examples/dist_figures/figures.h"
#include "nn/module.h"
#include "optim/step.h"

// When a backward pass computes and when its buckets travel, under the three kinds of overlap: rank 0 of two
// threads. Layers sleep instead of computing, all for the same time: so the kinds differ in who pushes and in
// how late their messages happen to be, but not in what the cores do besides.

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
/// What was seen of one step on rank 0; times from the beginning of the backward pass.
struct Timeline {
  std::vector<Span> layers;   ///< the last layer first
  std::vector<Span> buckets;  ///< in the order sent
  Span agreement;             ///< on the norm and on overflow, after the last bucket
  double reduced_ms = 0;      ///< reduce() returned
};

struct Passed {
  Clock::time_point begin, end;
};

/// Notes when the first message of each collective begins and its last one ends.
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

/// A layer that is only time: its backward pass sleeps, and then has the gradients of its input and weight.
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
        for (int i = 0; i <= kSteps; ++i) {  // not the first, which takes memory
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

constexpr double kLeft = 128, kTop = 116, kWidth = 800, kRight = 50, kBar = 26, kGroup = 112;

std::string lane(double y, const std::vector<Span>& spans, const std::string& style,
                 const std::function<double(double)>& x,
                 const std::function<std::string(std::size_t)>& label) {
  std::string out;
  for (std::size_t i = 0; i < spans.size(); ++i) {
    const double left = x(spans[i].begin_ms), width = std::max(x(spans[i].end_ms) - left, 1.0);
    out += rect(left + 0.5, y, std::max(width - 1, 0.5), kBar, style);
    if (width > 14) out += text(left + width / 2, y + 17, "on", "middle", label(i));
  }
  return out;
}

}  // namespace

std::string overlap_picture(std::string& table) {
  struct Kind {
    Overlap overlap;
    const char* name;
    const char* note;
  };
  constexpr Kind kKinds[] = {{Overlap::none, "none", "nobody pushes"},
                             {Overlap::pumped, "pumped", "the pass pushes"},
                             {Overlap::thread, "thread", "a thread pushes"}};
  std::vector<Timeline> timelines;
  double longest = 0;
  for (const Kind& kind : kKinds) {
    timelines.push_back(run(kind.overlap));
    longest = std::max(longest, timelines.back().reduced_ms);
  }
  const auto x = [&](double ms) { return kLeft + kWidth * ms / longest; };

  table =
      "| | backward pass | first bucket leaves | reduce() returns | of that, waiting "
      "|\n|---|---|---|---|---|\n";
  constexpr double kTotal = kTop + 3 * kGroup + 60;
  std::string out = begin_picture(kLeft + kWidth + kRight, kTotal, "Backward pass and buckets", R"(
    .wait { fill: none; stroke: #59636e; stroke-dasharray: 3 3 } .on { fill: #ffffff; font-size: 11px; font-weight: 600 }
    @media (prefers-color-scheme: dark) { .wait { stroke: #9198a1 } .on { fill: #0d1117 } }
)");
  out += text(24, 34, "title", "start", "A backward pass and its buckets");
  out += text(
      24, 56, "muted", "start",
      fmt::format(
          "Rank 0 of 2. {} layers, each of which sleeps for {} ms in place of computing; a bucket for each, "
          "from the last layer to the first.",
          kLayers, kLayer.count()));
  out +=
      text(24, 74, "muted", "start",
           fmt::format("An all-reduce of a bucket sends two messages one after the other, each up to {} ms "
                       "late, at random. Of {} steps the median.",
                       kDelay.count(), kSteps));
  for (std::size_t k = 0; k < timelines.size(); ++k) {
    const Timeline& timeline = timelines[k];
    const double y = kTop + static_cast<double>(k) * kGroup;
    const double computed = timeline.layers.back().end_ms;
    out +=
        text(24, y + 18, "head", "start", kKinds[k].name) + text(24, y + 36, "tick", "start", kKinds[k].note);
    out +=
        lane(y, timeline.layers, "c0", x, [](std::size_t i) { return fmt::format("{}", kLayers - 1 - i); });
    out += rect(x(computed) + 0.5, y, std::max(x(timeline.reduced_ms) - x(computed) - 1, 0.5), kBar, "wait");
    const std::string waits = fmt::format("waits {:.0f} ms", timeline.reduced_ms - computed);
    if (x(timeline.reduced_ms) - x(computed) > 80)
      out += text((x(computed) + x(timeline.reduced_ms)) / 2, y + 17, "tick", "middle", waits);
    else
      out += text(x(timeline.reduced_ms) + 6, y + 17, "tick", "start", waits);
    out += lane(y + 34, timeline.buckets, "c1", x, [](std::size_t i) { return fmt::format("{}", i); });
    out += lane(y + 34, {timeline.agreement}, "c2", x, [](std::size_t) { return "a"; });
    out += line(kLeft, y + 72, kLeft + kWidth, y + 72, "axis");
    table +=
        fmt::format("| {} | {:.2f} ms | {:.2f} ms | {:.2f} ms | {:.2f} ms |\n", kKinds[k].name, computed,
                    timeline.buckets.at(0).begin_ms, timeline.reduced_ms, timeline.reduced_ms - computed);
  }
  const double every = longest > 200 ? 50 : longest > 80 ? 20 : longest > 40 ? 10 : 5;
  for (double ms = 0; ms <= longest; ms += every) {
    const double y = kTop + 2 * kGroup + 72;
    out += line(x(ms), y, x(ms), y + 4, "axis") +
           text(x(ms), y + 18, "tick", "middle", fmt::format("{:.0f} ms", ms));
  }
  out += rect(kLeft, kTotal - 26, 12, 12, "c0") +
         text(kLeft + 18, kTotal - 16, "muted", "start", "backward pass, by layer");
  out +=
      rect(kLeft + 200, kTotal - 26, 12, 12, "c1") +
      text(kLeft + 218, kTotal - 16, "muted", "start", "messages, by bucket: 0 is layer 5's, 5 is layer 0's");
  out += rect(kLeft + 560, kTotal - 26, 12, 12, "c2") +
         text(kLeft + 578, kTotal - 16, "muted", "start", "a: norm and overflow agreed on");
  return out + "</svg>\n";
}

}  // namespace athanor::examples
