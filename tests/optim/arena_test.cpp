#include "optim/arena.h"

#include <limits>

#include "kernels/cpu/context.h"
#include "optim/step.h"
#include "tests/support/ops.h"

namespace athanor::arena_test {

Tensor counting(const Shape& shape, float first, bool trains = true) {
  Tensor x = Tensor::empty(shape);
  for (std::int64_t i = 0; i < x.numel(); ++i) x.data<float>()[i] = first + 0.37f * static_cast<float>(i);
  if (trains) require_grad(x);
  return x;
}

// Three layers with a scale that stays f32, sizes that do not fill their slices, and an empty tensor.
struct Model {
  Tensor conv = counting({5, 3, 3, 3}, 1), scale = counting({5}, -2), head = counting({10, 7}, 3),
         none = counting({0, 4}, 0), mean = counting({5}, 0.5f, false), variance = counting({5}, 9, false);

  std::vector<Parameter> parameters() const {
    return {{"conv", conv}, {"bn.scale", scale, true, false}, {"head", head}, {"none", none}};
  }
  std::vector<NamedTensor> buffers() const { return {{"bn.mean", mean}, {"bn.variance", variance}}; }
};

std::size_t address(const Tensor& x) {
  return reinterpret_cast<std::size_t>(x.raw_data());
}

TEST(Arena, SlicesAreAlignedInDeclaredOrderAndApart) {
  for (const Precision precision : {Precision::f32, Precision::bf16, Precision::f16}) {
    const Model model;
    const ParameterArena arena(model.parameters(), model.buffers(), {.precision = precision});
    EXPECT_EQ(arena.numel(), 5 * 27 + 5 + 70);
    EXPECT_EQ(arena.parts().size(), precision == Precision::f32 ? 1u : 2u);
    std::vector<std::int64_t> end(arena.parts().size());
    for (int i = 0; i < arena.size(); ++i) {
      const ArenaLayout::Slice& slice = arena.slice(i);
      EXPECT_GE(slice.begin, end[static_cast<std::size_t>(slice.part)]);
      end[static_cast<std::size_t>(slice.part)] = slice.begin + slice.count;
      const Tensor& weight = arena.parameters()[static_cast<std::size_t>(i)].tensor;
      EXPECT_EQ(address(weight) % 128, 0u);
      EXPECT_EQ(address(arena.gradient(i)) % 128, 0u);
      EXPECT_EQ(address(arena.master(i)) % 128, 0u);
      EXPECT_EQ(arena.gradient(i).dtype(), weight.dtype());
    }
    EXPECT_EQ(address(model.variance) % 128, 0u);
  }
}

TEST(Arena, HeldHandlesSeeTheirValuesAndLaterWrites) {
  const Model model;
  const Tensor held = model.head;  // as a module's member would
  const std::vector<double> before = held.to_vector(), mean = model.mean.to_vector();
  const ParameterArena arena(model.parameters(), model.buffers());
  EXPECT_EQ(held.to_vector(), before);
  EXPECT_EQ(model.mean.to_vector(), mean);
  arena.parts()[0].masters.data<float>()[arena.slice(2).begin + 3] = 77;
  EXPECT_EQ(held.to_vector()[3], 77);
  EXPECT_TRUE(held.requires_grad());
}

TEST(Arena, TiedWeightsAreTakenOnceAndOverlapIsRefused) {
  const Tensor shared = counting({4, 4}, 1);
  const ParameterArena arena({{"encoder", shared}, {"decoder", shared}}, {});
  EXPECT_EQ(arena.size(), 1);
  EXPECT_EQ(arena.parameters()[0].name, "encoder");
  EXPECT_EQ(arena.numel(), 16);

  const Tensor whole = counting({8}, 1, false), part = whole.view_as_strided({4}, {1}, 2);
  EXPECT_THROW(ParameterArena({{"whole", whole}, {"part", part}}, {}), ArgumentError);
  EXPECT_THROW(ParameterArena({{"whole", whole}}, {{"alias", whole.detach()}}), ArgumentError);
  EXPECT_THROW(ParameterArena({{"double", Tensor::zeros({2}, {DType::f64})}}, {}), ArgumentError);
}

TEST(Arena, GradientsLandInTheirSlices) {
  const Tensor a = counting({3}, 1), b = counting({3}, 5);
  ParameterArena arena({{"a", a}, {"b", b}}, {});
  const Tensor y = a * b;
  const float seed[] = {1, 1, 1};
  backward(y, Tensor::from(std::span<const float>(seed), {3}));
  EXPECT_EQ(grad_of(a).raw_data(), arena.gradient(0).raw_data());
  EXPECT_EQ(grad_of(a).raw_data(), arena.parts()[0].gradients.raw_data() + 4 * arena.slice(0).begin);
  EXPECT_EQ(arena.gradient(0).to_vector(), b.to_vector());
  EXPECT_EQ(arena.gradient(1).to_vector(), a.to_vector());

  const std::byte* const flat = arena.parts()[0].gradients.raw_data();
  arena.zero_grad();
  EXPECT_FALSE(arena.has_gradient(0));
  EXPECT_EQ(arena.gradient(0).to_vector(), b.to_vector());  // nothing is written
  backward(a * a, Tensor::from(std::span<const float>(seed), {3}));
  EXPECT_TRUE(arena.has_gradient(0));
  EXPECT_FALSE(arena.has_gradient(1));
  EXPECT_FLOAT_EQ(static_cast<float>(arena.gradient(0).to_vector()[2]), 2 * a.data<float>()[2]);
  EXPECT_EQ(arena.parts()[0].gradients.raw_data(), flat);
}

TEST(Arena, FrozenLeafMayRequireGradientLater) {
  const Tensor a = counting({3}, 1, false);
  ParameterArena arena({{"a", a}}, {});
  EXPECT_FALSE(arena.has_gradient(0));
  require_grad(a);
  arena.zero_grad();
  const float seed[] = {1, 1, 1};
  backward(a + a, Tensor::from(std::span<const float>(seed), {3}));
  EXPECT_TRUE(arena.has_gradient(0));
  EXPECT_EQ(arena.gradient(0).to_vector(), (std::vector<double>{2, 2, 2}));
}

TEST(Arena, HalfPrecisionKeepsMastersAndF32Parameters) {
  const Model model;
  const std::vector<double> conv = model.conv.to_vector(), scale = model.scale.to_vector();
  const ParameterArena arena(model.parameters(), model.buffers(), {.precision = Precision::bf16});
  EXPECT_EQ(model.conv.dtype(), DType::bf16);
  EXPECT_EQ(model.scale.dtype(), DType::f32);
  EXPECT_EQ(model.mean.dtype(), DType::f32);
  EXPECT_EQ(arena.master(0).to_vector(), conv);
  EXPECT_EQ(model.scale.to_vector(), scale);
  EXPECT_EQ(arena.master(1).raw_data(), model.scale.raw_data());
  for (std::size_t i = 0; i < conv.size(); ++i) {
    EXPECT_EQ(model.conv.to_vector()[i], double(float(BFloat16(static_cast<float>(conv[i])))));
  }
  const Model wide;
  const ParameterArena accumulating(wide.parameters(), {},
                                    {.precision = Precision::bf16, .f32_gradients = true});
  EXPECT_EQ(accumulating.gradient(0).dtype(), DType::f32);
}

TEST(Arena, WeightsFollowMasters) {
  const Model model;
  ParameterArena arena(model.parameters(), {}, {.precision = Precision::bf16});
  arena.master(0).data<float>()[0] = 3;
  const std::uint32_t version = model.conv.version();
  arena.weights_from_masters();
  EXPECT_EQ(model.conv.to_vector()[0], 3);
  EXPECT_GT(model.conv.version(), version);
}

TEST(Arena, HashIgnoresPaddingPrecisionAndBucketsButNoValue) {
  const auto hash = [](const ArenaOptions& options, auto&& change) {
    const Model model;
    ParameterArena arena(model.parameters(), model.buffers(), options);
    change(arena);
    return arena.weights_hash();
  };
  const auto nothing = [](ParameterArena&) {};
  const std::uint64_t expected = hash({}, nothing);
  EXPECT_EQ(hash({.precision = Precision::bf16}, nothing), expected);
  EXPECT_EQ(hash({.precision = Precision::f16, .f32_gradients = true}, nothing), expected);
  EXPECT_EQ(hash({.bucket_bytes = 64, .shards = 7}, nothing), expected);
  {
    const test::Threads others(cpu_context().threads() == 1 ? 2 : 1);
    EXPECT_EQ(hash({}, nothing), expected);
  }

  for (int parameter : {0, 1, 2}) {
    for (std::int64_t element : {0, 4}) {
      EXPECT_NE(
          hash({}, [&](ParameterArena& a) { a.master(parameter).data<float>()[element] *= 1.0000001f; }),
          expected);
    }
  }
  EXPECT_NE(
      hash({},
           [](ParameterArena& a) { std::swap(a.master(0).data<float>()[0], a.master(0).data<float>()[1]); }),
      expected);
  EXPECT_NE(
      hash({},
           [](ParameterArena& a) { std::swap(a.master(0).data<float>()[0], a.master(2).data<float>()[0]); }),
      expected);
  EXPECT_EQ(hash({}, [](ParameterArena& a) { a.parts()[0].masters.data<float>()[140] = 5; }), expected)
      << "element 140 is padding";
}

// The value itself is a promise: two releases must print the same hash for the same weights.
TEST(Arena, HashOfOneToThreeIsStable) {
  const ParameterArena arena({{"w", Tensor::from(std::vector<float>{1, 2, 3}, {3})}}, {});
  EXPECT_EQ(arena.weights_hash(), 0xdea62be7595deff6u);
}

TEST(Arena, RestoresBuffersFromTheSnapshot) {
  const Model model;
  ParameterArena arena(model.parameters(), model.buffers());
  const std::vector<double> mean = model.mean.to_vector(), variance = model.variance.to_vector();
  arena.buffers().snapshot();
  const auto spoil = [&] {
    model.mean.data<float>()[2] = std::numeric_limits<float>::quiet_NaN();
    model.variance.data<float>()[4] = -1;
  };
  spoil();
  arena.buffers().restore();
  EXPECT_EQ(model.mean.to_vector(), mean);
  EXPECT_EQ(model.variance.to_vector(), variance);

  spoil();
  StepBuffer state;
  arena.buffers().restore_if_skipped(state);
  EXPECT_EQ(model.variance.to_vector()[4], -1);
  state->found_inf = 1;
  arena.buffers().restore_if_skipped(state);
  EXPECT_EQ(model.mean.to_vector(), mean);
  EXPECT_EQ(model.variance.to_vector(), variance);
}

TEST(Arena, BucketsCoverAllGradientsFromTheBack) {
  const Model model;
  constexpr std::size_t kBytes = 200;
  constexpr int kShards = 3;
  const ParameterArena arena(model.parameters(), model.buffers(),
                             {.precision = Precision::bf16, .bucket_bytes = kBytes, .shards = kShards});
  std::vector<std::int64_t> covered(arena.parts().size());
  std::vector<std::int64_t> last(arena.parts().size(), std::numeric_limits<std::int64_t>::max());
  for (const ArenaRange& bucket : arena.layout().buckets) {
    const auto part = static_cast<std::size_t>(bucket.part);
    const auto element = static_cast<std::int64_t>(size_of(arena.parts()[part].dtype));
    EXPECT_LE(bucket.end, last[part]);
    last[part] = bucket.begin;
    covered[part] += bucket.end - bucket.begin;
    EXPECT_EQ((bucket.end - bucket.begin) * element % (kShards * 128), 0);
  }
  // head: 140 bytes; conv: 270, more than there may be; the f32 scale
  EXPECT_EQ(arena.layout().buckets.size(), 3u);
  for (std::size_t part = 0; part < covered.size(); ++part)
    EXPECT_EQ(covered[part], arena.parts()[part].size);
}

TEST(Arena, KeepsTheMastersOfAShard) {
  const Model model, whole_model;
  const ParameterArena whole(whole_model.parameters(), whole_model.buffers(), {.precision = Precision::bf16});
  const auto conv = whole.slice(0), head = whole.slice(2);
  const std::vector<double> before = whole.master(0).to_vector();
  // The last elements of conv and the first of head; a few of the f32 scale, whose weights are its masters.
  const std::int64_t first = conv.begin + 100, last = head.begin + 20;
  const int scale = whole.slice(1).part;
  ParameterArena arena(model.parameters(), model.buffers(),
                       {.precision = Precision::bf16, .keep = [&](const ArenaLayout&) {
                          return std::vector<ArenaRange>{{scale, 2, 5}, {conv.part, first, last}};
                        }});
  EXPECT_TRUE(arena.shards().sharded());
  struct Run {
    std::int64_t begin, count, masters, local;
    bool operator==(const Run&) const = default;
  };
  const auto runs = [&](int parameter) {
    std::vector<Run> found;
    arena.shards().for_each_run(parameter, [&](const Shards::Run& run) {
      found.push_back({run.begin, run.count, run.masters, run.local});
    });
    return found;
  };
  EXPECT_EQ(runs(0), (std::vector<Run>{{100, 35, 0, 0}}));
  EXPECT_EQ(runs(1), (std::vector<Run>{{2, 3, 2, 0}}));
  EXPECT_EQ(runs(2), (std::vector<Run>{{0, 20, head.begin - first, head.begin - first}}));
  EXPECT_TRUE(runs(3).empty());
  const Tensor& kept = arena.parts()[static_cast<std::size_t>(conv.part)].masters;
  EXPECT_EQ(kept.numel(), last - first);
  for (std::int64_t i = 0; i < 35; ++i)
    EXPECT_EQ(kept.data<float>()[i], before[static_cast<std::size_t>(100 + i)]);
  for (std::size_t i = 0; i < arena.parts().size(); ++i)
    EXPECT_TRUE(test::same_bits(arena.parts()[i].weights, whole.parts()[i].weights));
  EXPECT_THROW((void)arena.master(0), ArgumentError);
  EXPECT_THROW((void)arena.weights_hash(), ArgumentError);
  const std::int64_t updates = arena.updates();
  arena.weights_from_masters();
  EXPECT_GT(arena.updates(), updates) << "or no rank learns that weights are to be gathered";
  // What it saves are its runs, under the names of the whole.
  const ShardedTensor part = arena.state_dict().sharded(arena.parameters()[0].name);
  EXPECT_EQ(part.shape, arena.parameters()[0].tensor.shape());
  ASSERT_EQ(part.runs.size(), 1u);
  EXPECT_EQ(part.runs[0].begin, 100);
  EXPECT_EQ(part.runs[0].values.to_vector(), std::vector<double>(before.begin() + 100, before.end()));
}

TEST(Arena, RefusesShardsThatOverlapOrLieOutside) {
  const Model model;
  const std::int64_t size =
      ParameterArena(model.parameters(), model.buffers(), {.precision = Precision::f32}).parts()[0].size;
  const auto keep = [&](std::vector<ArenaRange> ranges) {
    const Model other;
    const ParameterArena arena(other.parameters(), other.buffers(),
                               {.keep = [&](const ArenaLayout&) { return ranges; }});
  };
  EXPECT_NO_THROW(keep({{0, 0, 10}, {0, 10, size}}));
  EXPECT_THROW(keep({{0, 0, 10}, {0, 9, 20}}), ArgumentError);
  EXPECT_THROW(keep({{0, 0, size + 1}}), ArgumentError);
  EXPECT_THROW(keep({{2, 0, 1}}), ArgumentError);
}

TEST(Arena, TagsMemoryByPurpose) {
  const auto tagged = [](const char* tag) { return allocator_of(kCpu).stats().by_tag[tag]; };
  const std::int64_t weights = tagged("weights"), masters = tagged("masters");
  const Tensor big = counting({1 << 22}, 0);
  const ParameterArena arena({{"big", big}}, {}, {.precision = Precision::bf16});
  const std::int64_t slack = 2 << 20;  // a large block is rounded up to huge pages
  EXPECT_GE(tagged("weights") - weights, 8 << 20);
  EXPECT_LE(tagged("weights") - weights, (8 << 20) + slack);
  EXPECT_GE(tagged("masters") - masters, 16 << 20);
  EXPECT_LE(tagged("masters") - masters, (16 << 20) + slack);
}

}  // namespace athanor::arena_test
