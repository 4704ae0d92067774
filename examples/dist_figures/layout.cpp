#include <array>
#include <memory>

#include "dist/bucket_layout.h"
#include "examples/common/svg.h"
#include "examples/dist_figures/figures.h"
#include "nn/linear.h"
#include "nn/models/model.h"

// Who owns what in ZeRO-1, from the layout a real arena has, and what the ranks keep, from the allocator.

namespace athanor::examples {
namespace {

constexpr int kRanks = 4;
constexpr double kLeft = 150, kTop = 112, kWidth = 760, kHeight = 26, kRow = 62, kRight = 30;

std::string bar(double x, double y, double width, const std::string& style) {
  return rect(x + 0.5, y, width - 1, kHeight, style);
}

std::string title_of(double y, const std::string& head, const std::string& note) {
  return text(kLeft - 14, y + 12, "head", "end", head) + text(kLeft - 14, y + 27, "tick", "end", note);
}

/// The chapter's.
struct Net final : nn::Module {
  nn::Linear first{40, 30}, second{30, 24}, last{24, 10};
  Net() {
    register_module("first", first);
    register_module("second", second);
    register_module("last", last);
    initialize(1);
  }
  Tensor forward(const Tensor& x) override { return last(second(first(x))); }
};

/// Bytes a rank keeps for a ResNet-18 in bf16 with AdamW: 4 for an f32 master and 8 for two moments, of every
/// element that is its own, padding included. All ranks keep the same.
std::string memory_table() {
  std::string table = "| ranks | DDP | ZeRO-1 | saved | padding |\n|---|---|---|---|---|\n";
  for (const int world : {1, 2, 4, 8, 16, 64}) {
    const auto net = nn::make_model("resnet18", {1000, 3, 224}, 1);
    const ParameterArena arena(net->parameters(), net->buffers(),
                               dist::bucketed({.precision = Precision::bf16}, world));
    const dist::BucketLayout layout(arena, world);
    std::int64_t all = 0, mine = 0, logical = 0;
    for (std::size_t b = 0; b < layout.buckets().size(); ++b) {
      all += layout.buckets()[b].range.count();
      mine += layout.shard(static_cast<int>(b), world - 1).count();
    }
    for (int rank = 0; rank < world; ++rank) {
      for (const auto& piece : layout.pieces(rank)) logical += piece.count;
    }
    if (mine * world != all || logical != arena.numel())
      detail::fail<>("layout_picture: {} shards must make up all parameters, but do not", world);
    const auto mb = [](std::int64_t elements) { return 12 * static_cast<double>(elements) / 1e6; };
    table += fmt::format("| {} | {:.1f} MB | {:.1f} MB | {:.1f} MB | {} elements |\n", world, mb(all),
                         mb(mine), mb(all - mine), all - logical);
  }
  return table;
}

}  // namespace

std::string layout_picture(std::string& table) {
  Net net;
  const ParameterArena arena(net.parameters(), {},
                             dist::bucketed({}, kRanks, {.bucket_bytes = 4000, .first_bucket_bytes = 1100}));
  const dist::BucketLayout layout(arena, kRanks);
  const ParameterArena::Part& part = arena.parts()[0];
  const auto x_of = [&](std::int64_t element) {
    return kLeft + kWidth * static_cast<double>(element) / static_cast<double>(part.size);
  };

  constexpr double kTotal = kTop + 3 * kRow + kRanks * 34 + 74;
  std::string out = begin_picture(kLeft + kWidth + kRight, kTotal, "Who owns what", R"(
    .bucket { fill: none; stroke: #59636e } .parameter { fill: #d1d9e0 } .other { fill: #eaeef2 }
    .inside { font-size: 11px } .padding { fill: none; stroke: #59636e; stroke-dasharray: 2 2 } .leader { stroke: #59636e } .cut { stroke: #59636e; stroke-dasharray: 3 3 }
    @media (prefers-color-scheme: dark) {
      .bucket { stroke: #9198a1 } .parameter { fill: #3d444d } .other { fill: #1c2229 } .cut { stroke: #9198a1 }
      .padding { stroke: #9198a1 } .leader { stroke: #9198a1 }
    }
)");
  out += text(24, 34, "title", "start", "Who owns what");
  out +=
      text(24, 56, "muted", "start",
           fmt::format("{} parameters of a small network in one arena of {} elements, its buckets, and their "
                       "shards for {} ranks",
                       arena.size(), part.size, kRanks));

  double y = kTop;
  out += title_of(y, "parameters", "declared order");
  for (int i = 0; i < arena.size(); ++i) {
    const auto& slice = arena.slice(i);
    const std::int64_t next = i + 1 < arena.size() ? arena.slice(i + 1).begin : part.size;
    const double padding = x_of(slice.begin + slice.count);
    if (x_of(next) > padding + 2) out += bar(padding, y, x_of(next) - padding, "padding");
    const double x = x_of(slice.begin), width = x_of(slice.begin + slice.count) - x, middle = x + width / 2;
    out += bar(x, y, width, "parameter");
    const std::string& name = arena.parameters()[static_cast<std::size_t>(i)].name;
    if (width > 60) {
      out += text(middle, y + 17, "inside", "middle", name);
    } else {
      out += line(middle, y - 6, middle, y, "leader") + text(middle, y - 11, "tick", "middle", name);
    }
  }
  y += kRow;
  out += title_of(y, "buckets", "numbered as sent");
  for (std::size_t b = 0; b < layout.buckets().size(); ++b) {
    const dist::Range range = layout.buckets()[b].range;
    const double x = x_of(range.begin), width = x_of(range.end) - x;
    out += bar(x, y, width, "bucket");
    out += text(x + width / 2, y + 17, "inside", "middle", fmt::format("bucket {}", b));
    out += line(x, kTop - 5, x, kTotal - 50, "cut");
  }
  out += line(x_of(part.size), kTop - 5, x_of(part.size), kTotal - 50, "cut");
  y += kRow;
  out += title_of(y, "shards", "colour: its rank");
  const auto shards = [&](int rank, double at, bool others) {
    std::string bars;
    for (std::size_t b = 0; b < layout.buckets().size(); ++b) {
      const dist::Range range = layout.shard(static_cast<int>(b), rank);
      bars += bar(x_of(range.begin), at, x_of(range.end) - x_of(range.begin),
                  others ? "other" : fmt::format("c{}", rank));
    }
    return bars;
  };
  for (int rank = 0; rank < kRanks; ++rank) out += shards(rank, y, false);
  y += kRow;
  out += text(kLeft + 5, y - 2, "tick", "start", "what each rank keeps of masters and optimizer state");
  y += 8;
  for (int rank = 0; rank < kRanks; ++rank, y += 34) {
    out += text(kLeft - 14, y + 18, "head", "end", fmt::format("rank {}", rank));
    for (int other = 0; other < kRanks; ++other) out += shards(other, y, other != rank);
  }
  out += text(
      24, kTotal - 16, "muted", "start",
      "A shard may begin in one parameter and end in another. Dashed: padding, zeros that nobody saves.");
  table = memory_table();
  return out + "</svg>\n";
}

}  // namespace athanor::examples
