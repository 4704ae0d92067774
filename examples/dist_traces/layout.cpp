#include <memory>

#include "dist/bucket_layout.h"
#include "examples/dist_traces/traces.h"
#include "nn/linear.h"
#include "nn/models/model.h"

// Ownership in ZeRO-1 from the layout of a real arena, and each rank's memory from the allocator.

namespace athanor::examples {
namespace {

constexpr int kLayoutRanks = 4;
/// The chapter's network.
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

/// The number of elements of a ResNet-18's arena that each rank keeps, and the total.
nlohmann::json shares() {
  nlohmann::json rows = nlohmann::json::array();
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
    for (const auto& piece : layout.pieces()) logical += piece.count;
    if (mine * world != all || logical != arena.numel())
      detail::fail<>("layout_trace: {} shards must make up all parameters, but do not", world);
    rows.push_back({{"ranks", world}, {"all", all}, {"mine", mine}, {"padding", all - logical}});
  }
  return rows;
}

}  // namespace

nlohmann::json layout_trace() {
  Net net;
  const ParameterArena arena(
      net.parameters(), {},
      dist::bucketed({}, kLayoutRanks, {.bucket_bytes = 4000, .first_bucket_bytes = 1100}));
  const dist::BucketLayout layout(arena, kLayoutRanks);
  nlohmann::json trace{{"size", arena.parts()[0].size}, {"shares", shares()}};
  for (int i = 0; i < arena.size(); ++i) {
    const auto& slice = arena.slice(i);
    const std::string& name = arena.parameters()[static_cast<std::size_t>(i)].name;
    trace["parameters"].push_back({{"name", name}, {"begin", slice.begin}, {"count", slice.count}});
  }
  const auto ends = [](dist::Range range) { return nlohmann::json{range.begin, range.end}; };
  for (std::size_t b = 0; b < layout.buckets().size(); ++b) {
    nlohmann::json shards;
    for (int rank = 0; rank < kLayoutRanks; ++rank)
      shards.push_back(ends(layout.shard(static_cast<int>(b), rank)));
    trace["buckets"].push_back({{"range", ends(layout.buckets()[b].range)}, {"shards", shards}});
  }
  return trace;
}

}  // namespace athanor::examples
