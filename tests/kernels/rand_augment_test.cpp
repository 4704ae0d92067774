#include "kernels/rand_augment.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "data/preprocess.h"
#include "data/synthetic.h"
#include "kernels/cpu/context.h"
#include "tensor/io/safetensors.h"
#include "tests/support/errors.h"
#include "tests/support/folder.h"

namespace athanor::rand_augment_test {

using kernels::RandOp;

bool has_two_ways(RandOp op) {
  return op >= RandOp::shear_x && op <= RandOp::sharpness;
}

using Kind = kernels::RandPass::Kind;

/// A sample whose first operation is this one, this way; of trivial-augment, at this magnitude, too.
std::int64_t sample_that_draws(const kernels::RandPass& pass, RandOp op, bool negative,
                               const kernels::AugmentKey& key) {
  const bool trivial = pass.kind == Kind::trivial_augment;
  const auto stream = trivial ? kernels::AugmentOp::trivial_augment : kernels::AugmentOp::rand_augment;
  for (std::int64_t sample = 0; sample < 100'000; ++sample) {
    const PhiloxBlock random = kernels::draw_augment(key, static_cast<int>(stream), sample);
    if (kernels::below(random.word[0], kernels::kRandOps) == static_cast<int>(op) &&
        ((random.word[1] & 1) != 0) == negative &&
        (!trivial || kernels::below(random.word[2], 31) == pass.how.magnitude))
      return sample;
  }
  return -1;
}

void expect_golden(const StateDict& golden, const std::string& image, const kernels::RandPass& pass) {
  const kernels::AugmentKey key{5, 2, 1};
  const Tensor from = golden.tensor(image), want = golden.tensor(image + "_changed");
  std::vector<std::int64_t> samples;
  std::vector<int> ops;
  for (int op = 0; op < kernels::kRandOps; ++op) {
    for (const bool negative : {false, true}) {
      if (negative && !has_two_ways(static_cast<RandOp>(op))) continue;
      samples.push_back(sample_that_draws(pass, static_cast<RandOp>(op), negative, key));
      ops.push_back(op);
    }
  }
  const auto count = std::ssize(samples);
  ASSERT_EQ(want.shape()[0], count);
  Shape one = from.shape();
  const Tensor images = Tensor::empty({2, one[0], one[1], one[2]}, {DType::u8, kCpu});
  for (std::int64_t i = 0; i < images.numel(); ++i)
    images.data<std::uint8_t>()[i] = i < from.numel() ? 77 : from.data<std::uint8_t>()[i - from.numel()];
  const Tensor y = Tensor::empty(want.shape(), {DType::u8, kCpu});
  kernels::rand_augment(cpu_context(), pass, key, images,
                        Tensor::from(std::vector<std::int64_t>(samples.size(), 1), {count}),
                        Tensor::from(samples, {count}), y);
  for (std::int64_t n = 0; n < count; ++n) {
    std::int64_t differ = 0;
    for (std::int64_t i = 0; i < from.numel(); ++i)
      differ +=
          y.data<std::uint8_t>()[n * from.numel() + i] != want.data<std::uint8_t>()[n * from.numel() + i];
    EXPECT_EQ(differ, 0) << image << ", operation " << ops[static_cast<std::size_t>(n)] << ", row " << n;
  }
}

TEST(RandAugment, HasTorchvisionsAndPillowsBytes) {
  const StateDict golden = safetensors::load(test::folder("ATHANOR_GOLDEN_DIR", ATHANOR_GOLDEN_DIR) +
                                             "/augment/rand_augment.safetensors");
  expect_golden(golden, "rgb", {.how = {.operations = 1, .magnitude = 9}});
  expect_golden(golden, "grey", {.how = {.operations = 1, .magnitude = 23}});
}

StateDict golden_of_trivial_augment() {
  return safetensors::load(test::folder("ATHANOR_GOLDEN_DIR", ATHANOR_GOLDEN_DIR) +
                           "/augment/trivial_augment.safetensors");
}

TEST(TrivialAugment, HasTorchvisionsAndPillowsBytes) {
  const StateDict golden = golden_of_trivial_augment();
  expect_golden(golden, "rgb", {.kind = Kind::trivial_augment, .how = {.magnitude = 26}});
  expect_golden(golden, "grey", {.kind = Kind::trivial_augment, .how = {.magnitude = 11}});
}

/// The largest difference to image n of `want`.
int worst(const kernels::RandChange& change, const Tensor& from, const Tensor& want, std::int64_t n) {
  const Shape& shape = from.shape();
  const kernels::RandImage image{from.data<std::uint8_t>(), shape[0], shape[1], shape[2]};
  const kernels::RandPixels pixels{change, nullptr, image};
  int most = 0;
  const std::uint8_t* to = want.data<std::uint8_t>() + n * from.numel();
  for (std::int64_t i = 0; i < from.numel(); ++i) {
    const std::int64_t at = i / shape[2];
    most = std::max(most, std::abs(pixels(at / shape[1], at % shape[1], i % shape[2]) - to[i]));
  }
  return most;
}

TEST(Rotation, HasPillowsBytes) {
  const StateDict golden = golden_of_trivial_augment();
  const Tensor from = golden.tensor("rgb"), want = golden.tensor("turned");
  std::int64_t n = 0;
  for (const double degrees : {-180.0, -37.5, 10.0, 90.0, 171.0}) {
    kernels::RandChange change = kernels::rand_change(RandOp::rotate, false, 0, 16, 17);
    kernels::set_turn(change, degrees * 3.14159265358979324 / 180, 30, 16, 17);
    EXPECT_EQ(worst(change, from, want, n++), 0) << degrees;
  }
}

TEST(Rotation, DrawsAnglesEvenlyBothWays) {
  int left = 0, far = 0;
  for (std::int64_t sample = 0; sample < 4000; ++sample) {
    const auto change = kernels::draw_change({.kind = Kind::rotation, .amount = 20}, 32, 32, {1, 2}, sample);
    const double sine = double(change.row[0]) / 65536;
    EXPECT_LE(std::abs(sine), std::sin(20 * 3.14159265 / 180) + 1e-4);
    left += sine < 0 ? 1 : 0;
    far += std::abs(sine) > std::sin(10 * 3.14159265 / 180) ? 1 : 0;
  }
  EXPECT_NEAR(left, 2000, 150);
  EXPECT_NEAR(far, 2000, 150);
}

// torchvision adds floats: where the mean is halfway between two bytes it may take the other one.
TEST(Blur, IsTorchvisionsWithinAByte) {
  const StateDict golden = golden_of_trivial_augment();
  const Tensor from = golden.tensor("grey"), want = golden.tensor("blurred");
  std::int64_t n = 0;
  for (const double deviation : {0.1, 0.7, 1.3, 2.0}) {
    kernels::RandChange change = kernels::rand_change(RandOp::identity, false, 0, 18, 30);
    change.op = RandOp::blur;
    kernels::set_blur(change, deviation, 17);
    EXPECT_LE(worst(change, from, want, n++), deviation == 0.1 ? 0 : 1) << deviation;
    EXPECT_EQ(change.blur_radius, kernels::kMaxBlur);
  }
}

// The kernel adds one axis after the other; each pixel alone adds both: the same whole numbers.
TEST(Blur, IsTheSameByRowsAndByPixels) {
  const ImageSpec spec{9, 30, 3, 4};
  const auto data = synthetic(spec, 40, 5);
  const Tensor images =
      Tensor::from(std::vector(data->pixels().begin(), data->pixels().end()), {40, 9, 30, 3});
  std::vector<std::int64_t> numbers(40);
  for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<std::int64_t>(i);
  const kernels::RandPass pass{.kind = Kind::blur, .amount = 0.6f};
  const Tensor y = Tensor::empty(images.shape(), {DType::u8, kCpu});
  kernels::rand_augment(cpu_context(), pass, {3, 1}, images, {}, Tensor::from(numbers, {40}), y);
  int blurred = 0;
  for (std::int64_t n = 0; n < 40; ++n) {
    const auto change = kernels::draw_change(pass, 9, 30, {3, 1}, n);
    const std::uint8_t *from = images.data<std::uint8_t>() + n * 810, *to = y.data<std::uint8_t>() + n * 810;
    if (change.op != RandOp::blur) {
      EXPECT_TRUE(std::equal(from, from + 810, to)) << n;
      continue;
    }
    ++blurred;
    EXPECT_EQ(change.blur_radius, 8) << "one less than the side";
    const kernels::RandPixels pixels{change, nullptr, {from, 9, 30, 3}};
    for (std::int64_t i = 0; i < 810; ++i) ASSERT_EQ(to[i], pixels(i / 90, i / 3 % 30, i % 3)) << n;
  }
  EXPECT_GT(blurred, 12);
  EXPECT_LT(blurred, 36);
}

TEST(RandAugment, DrawsEveryOperationBothWays) {
  std::map<std::pair<RandOp, bool>, int> drawn;
  constexpr int kSamples = 7000;
  const RandAugment how;
  for (std::int64_t sample = 0; sample < kSamples; ++sample) {
    const auto change = kernels::draw_rand_change(how, 0, 32, 32, {1, 2}, sample);
    const bool negative = change.factor < 1 || change.column[2] > 32768 || change.row[2] > 32768;
    ++drawn[{change.op, negative}];
  }
  std::set<RandOp> ops;
  for (const auto& [what, count] : drawn) ops.insert(what.first);
  EXPECT_EQ(ops.size(), 14u);
  for (const RandOp op : {RandOp::brightness, RandOp::color, RandOp::contrast, RandOp::sharpness}) {
    EXPECT_NEAR((drawn[{op, true}]), kSamples / 28, 65) << int(op);
    EXPECT_NEAR((drawn[{op, false}]), kSamples / 28, 65) << int(op);
  }
  EXPECT_NEAR((drawn[{RandOp::equalize, false}]), kSamples / 14, 90);
}

TEST(RandAugment, DrawsBySeedEpochSampleViewAndNumber) {
  const auto ops = [](const kernels::AugmentKey& key, int number) {
    std::vector<RandOp> all;
    for (std::int64_t sample = 0; sample < 40; ++sample)
      all.push_back(kernels::draw_rand_change({}, number, 8, 8, key, sample).op);
    return all;
  };
  const auto one = ops({1, 2, 0}, 0);
  EXPECT_EQ(ops({1, 2, 0}, 0), one);
  EXPECT_NE(ops({2, 2, 0}, 0), one);
  EXPECT_NE(ops({1, 3, 0}, 0), one);
  EXPECT_NE(ops({1, 2, 1}, 0), one);
  EXPECT_NE(ops({1, 2, 0}, 1), one);
}

TEST(RandAugment, OfMagnitudeZeroMovesNothing) {
  for (int op = 0; op < static_cast<int>(RandOp::posterize); ++op) {
    const auto change = kernels::rand_change(static_cast<RandOp>(op), true, 0, 9, 7);
    EXPECT_EQ(change.factor, 1);
    if (!change.moves()) continue;
    EXPECT_EQ(std::vector(change.column, change.column + 3), (std::vector<std::int64_t>{65536, 0, 32768}));
    EXPECT_EQ(std::vector(change.row, change.row + 3), (std::vector<std::int64_t>{0, 65536, 32768}));
  }
}

Batch batch_of(const ImageSpec& spec, std::int64_t count) {
  const auto data = synthetic(spec, count, 5);
  Batch batch;
  batch.images = Tensor::from(std::vector(data->pixels().begin(), data->pixels().end()),
                              {count, spec.height, spec.width, spec.channels});
  std::vector<std::int64_t> samples;
  for (std::int64_t i = 0; i < count; ++i) samples.push_back(3 * i + 1);
  batch.samples = Tensor::from(samples, {count});
  return batch;
}

const Normalization kPlain{{0, 0, 0}, {1, 1, 1}};

// Of several operations each is on what the one before has made.
TEST(RandAugment, GoesThroughPreprocessOperationByOperation) {
  const ImageSpec spec{9, 11, 3, 4};
  const Batch batch = batch_of(spec, 30);
  const RandAugment how{.operations = 3, .magnitude = 17};
  for (std::int64_t view = 0; view < 2; ++view) {
    const kernels::AugmentKey key{7, 4, view};
    Tensor bytes = batch.images;
    for (int number = 0; number < 3; ++number) {
      const Tensor next = Tensor::empty(bytes.shape(), {DType::u8, kCpu});
      kernels::rand_augment(cpu_context(), {.how = how, .number = number}, key, bytes, {}, batch.samples,
                            next);
      bytes = next;
    }
    const Preprocess with(spec, kPlain, DType::f32, kCpu, {.flip = true, .rand_augment = how}, 7, 2);
    const Preprocess without(spec, kPlain, DType::f32, kCpu, {.flip = true}, 7, 2);
    Batch changed = batch;
    changed.images = bytes;
    const auto part = [&](const Tensor& all) {
      const std::vector<double> values = all.to_vector();
      const auto half = static_cast<std::ptrdiff_t>(values.size() / 2), first = view * half;
      return std::vector(values.begin() + first, values.begin() + first + half);
    };
    EXPECT_EQ(part(with(batch, 4, true)), part(without(changed, 4, true)));
    EXPECT_NE(part(with(batch, 4, true)), part(without(batch, 4, true)));
    EXPECT_EQ(part(with(batch, 4, false)), part(without(batch, 4, false)));
  }
}

TEST(RandAugment, TakesRowsOfResidentImages) {
  const ImageSpec spec{8, 8, 1, 4};
  Batch batch = batch_of(spec, 20);
  const Preprocess preprocess(spec, {{0.0}, {1.0}}, DType::f32, kCpu, {.rand_augment = RandAugment{}}, 7);
  const auto all = preprocess(batch, 0, true).to_vector();
  std::vector<std::int64_t> rows, samples;
  for (std::int64_t i = 19; i >= 10; --i) {
    rows.push_back(i);
    samples.push_back(batch.samples.data<std::int64_t>()[i]);
  }
  batch.rows = Tensor::from(rows, {10});
  batch.samples = Tensor::from(samples, {10});
  const auto some = preprocess(batch, 0, true).to_vector();
  for (std::size_t n = 0; n < 10; ++n) {
    for (std::size_t i = 0; i < 64; ++i) ASSERT_EQ(some[n * 64 + i], all[(19 - n) * 64 + i]) << n;
  }
}

TEST(RandAugment, RejectsInvalidArguments) {
  const auto with = [](const ImageSpec& spec, const RandAugment& how) {
    const Normalization plain{std::vector<double>(std::size_t(spec.channels), 0.0),
                              std::vector<double>(std::size_t(spec.channels), 1.0)};
    return Preprocess(spec, plain, DType::f32, kCpu, {.rand_augment = how});
  };
  EXPECT_NO_THROW(with({8, 8, 1, 4}, {}));
  EXPECT_ERROR(ArgumentError, with({8, 8, 4, 4}, {}), "preprocess", "rand-augment", "1", "3", "4");
  EXPECT_ERROR(ArgumentError, with({8, 8, 3, 4}, {.operations = 0}), "preprocess", "rand-augment", "1", "16",
               "0");
  EXPECT_ERROR(ArgumentError, with({8, 8, 3, 4}, {.magnitude = 31}), "preprocess", "rand-augment", "[0, 30]",
               "31");
  const Augment rand{.rand_augment = RandAugment{}};
  const FieldSpec mask{"mask", DType::u8, {8, 8}, FieldKind::mask};
  const FieldSpec other{"age", DType::f32, {1}, FieldKind::values};
  EXPECT_ERROR(ArgumentError, check_fields(rand, {other, mask}), "preprocess", "rand-augment", "'mask'");
  EXPECT_NO_THROW(check_fields(rand, {other}));
  EXPECT_ERROR(ArgumentError, check_fields({.rotation = 10}, {mask}), "rotation", "'mask'");
  EXPECT_ERROR(ArgumentError, check_fields({.trivial_augment = true}, {mask}), "trivial-augment", "'mask'");
  EXPECT_NO_THROW(check_fields({.vertical_flip = true, .blur = 1}, {other, mask}));
  EXPECT_NO_THROW(check_fields({.flip = true}, {other, mask}));
}

// Of torchvision 0.29 with PyTorch 2.15 on a CPU with AVX2. 0.7 and 1.6 would be 0x1.666666p-1 and
// 0x1.99999ap+0.
TEST(RandAugment, FactorsAreTorchvisionsToTheLastBit) {
  const auto factor = [](bool negative, int magnitude) {
    return kernels::rand_change(RandOp::brightness, negative, magnitude, 8, 8).factor;
  };
  struct Factors {
    int magnitude;
    float up, down;
  };
  for (const auto& [magnitude, up, down] :
       {Factors{9, 0x1.451eb8p+0f, 0x1.75c29p-1f}, Factors{10, 0x1.4cccccp+0f, 0x1.666668p-1f},
        Factors{19, 0x1.91eb84p+0f, 0x1.b851ecp-2f}, Factors{20, 0x1.999998p+0f, 0x1.99999cp-2f},
        Factors{30, 0x1.e66666p+0f, 0x1.9999ap-4f}}) {
    EXPECT_EQ(factor(false, magnitude), up) << magnitude;
    EXPECT_EQ(factor(true, magnitude), down) << magnitude;
  }
}

// torchvision's are 255 - 8.5 m and floor(150 / 331 m / 30 side), which doubles only come close to.
TEST(RandAugment, ThresholdsAndShiftsAreExact) {
  for (int m = 0; m <= kernels::kMaxMagnitude; ++m) {
    EXPECT_EQ(kernels::rand_change(RandOp::solarize, false, m, 8, 8).inverted_from, std::ceil(255 - 8.5 * m))
        << m;
    const kernels::RandChange moved = kernels::rand_change(RandOp::translate_x, true, m, 8, 331);
    EXPECT_EQ((moved.column[2] - 32768) / 65536, 5 * m) << m;
  }
}

}  // namespace athanor::rand_augment_test
