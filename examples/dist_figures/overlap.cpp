#include <algorithm>
#include <array>
#include <chrono>
#include <map>
#include <mutex>

#include "autograd/elementwise.h"
#include "autograd/engine.h"
#include "autograd/node.h"
#include "autograd/reduce.h"
#include "dist/ddp.h"
#include "dist/thread_transport.h"
#include "examples/common/svg.h"
#include "examples/dist_figures/figures.h"
#include "nn/linear.h"
#include "optim/step.h"

// When a backward pass computes and when its buckets travel: rank 0 of two, on one machine, whose network is
// slowed down so that there is something to hide.

namespace athanor::examples {
namespace {

using Clock = std::chrono::steady_clock;
using dist::Overlap;

constexpr int kLayers = 6;
constexpr std::int64_t kWidthOfLayer = 512, kSamples = 1024;
constexpr std::size_t kBucketBytes = (kWidthOfLayer + 1) * kWidthOfLayer * sizeof(float);  // a layer
constexpr std::chrono::milliseconds kDelay{4};

struct Span {
  double begin_ms = 0, end_ms = 0;
};
/// What was seen of one step on rank 0; times from the beginning of the backward pass.
struct Timeline {
  std::vector<Span> layers;   ///< the last layer first
  std::vector<Span> buckets;  ///< in the order sent
  double reduced_ms = 0;      ///< reduce() returned
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

/// y = x; calls `f` when the backward pass comes by.
Tensor mark(const Tensor& x, std::vector<Clock::time_point>& passed) {
  const Tensor y = x.detach();
  return record("mark", y, {x}, [&passed](const Tensor& dy, Grads& dx) {
    passed.push_back(Clock::now());
    dx[0] = dy;
  });
}

class Chain final : public nn::Module {
 public:
  Chain() {
    for (int i = 0; i < kLayers; ++i) {
      layers.push_back(std::make_unique<nn::Linear>(kWidthOfLayer, kWidthOfLayer));
      register_module(fmt::format("layer{}", i), *layers.back());
    }
    initialize(1);
  }
  Tensor forward(const Tensor& x) override {
    passed.clear();
    Tensor y = x;
    for (const auto& layer : layers) y = relu((*layer)(mark(y, passed)));
    return y;
  }
  std::vector<std::unique_ptr<nn::Linear>> layers;
  std::vector<Clock::time_point> passed;
};

Timeline run(Overlap overlap) {
  Timeline timeline;
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
        const Tensor x = Tensor::zeros({kSamples, kWidthOfLayer});
        require_grad(x);               // so that the first layer's backward pass ends at a mark, too
        for (int i = 0; i < 4; ++i) {  // the last one counts: caches are warm
          arena.zero_grad();
          const Tensor loss = sum(net(x));
          comm.run(*comm.barrier());
          transport.times.clear();
          const Clock::time_point begin = Clock::now();
          backward_scaled(loss, step);
          ddp.reduce(step);
          const Clock::time_point end = Clock::now();
          if (i < 3 || transport.rank() != 0) continue;
          const auto ms = [&](Clock::time_point at) {
            return std::chrono::duration<double, std::milli>(at - begin).count();
          };
          double from = 0;
          for (const Clock::time_point at : net.passed) {
            timeline.layers.push_back({from, ms(at)});
            from = ms(at);
          }
          for (std::size_t b = 0; const auto& [tag, times] : transport.times) {
            if (b++ < ddp.layout().buckets().size())
              timeline.buckets.push_back({ms(times.first), ms(times.second)});
          }
          timeline.reduced_ms = ms(end);
        }
      },
      {.delay = kDelay, .seed = 2});
  return timeline;
}

constexpr double kLeft = 128, kTop = 100, kWidth = 800, kRight = 40, kBar = 26, kGroup = 112;

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
  const int threads = cpu_context().threads();
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
  cpu_context().set_threads(threads);
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
          "Rank 0 of 2 as threads, {} layers of {} x {}, one bucket each; every message takes up to {} ms on "
          "top",
          kLayers, kWidthOfLayer, kWidthOfLayer, kDelay.count()));
  for (std::size_t k = 0; k < timelines.size(); ++k) {
    const Timeline& timeline = timelines[k];
    const double y = kTop + static_cast<double>(k) * kGroup;
    const double computed = timeline.layers.back().end_ms;
    out +=
        text(24, y + 18, "head", "start", kKinds[k].name) + text(24, y + 36, "tick", "start", kKinds[k].note);
    out +=
        lane(y, timeline.layers, "c0", x, [](std::size_t i) { return fmt::format("{}", kLayers - 1 - i); });
    out += rect(x(computed) + 0.5, y, std::max(x(timeline.reduced_ms) - x(computed) - 1, 0.5), kBar, "wait");
    if (x(timeline.reduced_ms) - x(computed) > 50)
      out += text((x(computed) + x(timeline.reduced_ms)) / 2, y + 17, "tick", "middle", "waits");
    out += lane(y + 34, timeline.buckets, "c1", x, [](std::size_t i) { return fmt::format("{}", i); });
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
         text(kLeft + 18, kTotal - 16, "muted", "start", "backward, by layer");
  out += rect(kLeft + 170, kTotal - 26, 12, 12, "c1") +
         text(kLeft + 188, kTotal - 16, "muted", "start", "a bucket's messages, by bucket");
  return out + "</svg>\n";
}

}  // namespace athanor::examples
