#include "trainer/inference/predictor.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <fstream>
#include <latch>
#include <limits>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "autograd/conv.h"
#include "autograd/conv_norm.h"
#include "autograd/creation.h"
#include "autograd/elementwise.h"
#include "autograd/grad_mode.h"
#include "autograd/matmul.h"
#include "autograd/packed_model.h"
#include "autograd/shape.h"
#include "autograd/softmax.h"
#include "data/image/reader.h"
#include "kernels/cpu/context.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/onednn.h"
#include "kernels/implementations.h"
#include "nn/models/model.h"
#include "nn/quantized/quantized_network.h"
#include "nn/scale_outputs.h"
#include "tensor/philox.h"
#include "tests/support/count_new.h"
#include "tests/support/errors.h"
#include "tests/support/model_kinds.h"
#include "tests/support/small_model.h"
#include "tests/support/temp_dir.h"

// A trained classifier that many threads ask at once.

namespace athanor::predictor_test {

using test::kDigits;
using test::model_info;
using test::noise_images;

/// Statistics and scales of norms as training may leave them; new ones would fold into nothing.
void randomise_norms(const nn::Module& network) {
  std::uint64_t n = 0;
  const auto fill = [&](const Tensor& tensor, float low, float high) {
    ++n;
    for (std::int64_t i = 0; i < tensor.numel(); ++i) {
      const auto word = static_cast<float>(philox_word({n, 3}, static_cast<std::uint64_t>(i)) >> 8);
      tensor.data<float>()[i] = low + (high - low) * word / float(1 << 24);
    }
  };
  for (const NamedTensor& buffer : network.buffers()) {
    if (buffer.name.ends_with("running_mean")) fill(buffer.tensor, -0.5f, 0.5f);
    if (buffer.name.ends_with("running_var")) fill(buffer.tensor, 0.5f, 2.0f);
  }
  for (const Parameter& parameter : network.parameters()) {
    if (parameter.name == "heads.head.weight") fill(parameter.tensor.detach(), -0.1f, 0.1f);  // else zero
    if (!parameter.keep_f32 || parameter.tensor.rank() != 1) continue;
    const bool scale = parameter.name.ends_with("weight");
    fill(parameter.tensor.detach(), scale ? 0.6f : -0.3f, scale ? 1.4f : 0.3f);
  }
}

std::unique_ptr<nn::Module> network(const std::string& name, const ImageSpec& images,
                                    std::uint64_t seed = 1) {
  auto made = test::small_network(name, images, seed);
  randomise_norms(*made);
  return made;
}

Tensor floats(const Shape& shape) {
  const Tensor images = Tensor::empty(shape);
  for (std::int64_t i = 0; i < images.numel(); ++i) {
    const auto word = static_cast<float>(philox_word({9, 1}, static_cast<std::uint64_t>(i)) >> 8);
    images.data<float>()[i] = 4 * word / float(1 << 24) - 2;
  }
  return images;
}

constexpr ImageSpec kColours{16, 16, 3, 10};

Predictor of(const std::string& name, const ImageSpec& images) {
  return Predictor(network(name, images), model_info(name, images));
}

// Packed weights -------------------------------------------------------------------------------------------

class Folding : public testing::TestWithParam<std::string> {};

// Small, where the model was published for large images.
std::int64_t image_size(const std::string& model) {
  const std::int64_t published = nn::model_options(model).image_size;
  if (published <= 32) return published;
  try {
    return nn::model_options(model, {.image_size = 32}).image_size;
  } catch (const ArgumentError&) {
    return 64;
  }
}

TEST_P(Folding, ChangesLogitsByRoundingAlone) {
  const std::int64_t side = image_size(GetParam());
  const nn::ModelOptions full = nn::model_options(GetParam(), {.classes = 10, .image_size = side});
  const auto model = network(GetParam(), {side, side, full.in_channels, 10});
  model->eval();
  for (const std::int64_t n : {1, 3}) {
    const Tensor x = floats({n, side, side, full.in_channels});
    const InferenceMode plain;
    const std::vector<double> expected = (*model)(x).to_vector();
    const PackedModel weights;
    const InferenceMode inference(weights);
    const std::vector<double> packed = (*model)(x).to_vector();
    double largest = 0, error = 0;
    for (std::size_t i = 0; i < packed.size(); ++i) {
      largest = std::max(largest, std::abs(expected[i]));
      error = std::max(error, std::abs(packed[i] - expected[i]));
    }
    EXPECT_LE(error, 1e-5 * largest) << n << " images";
    EXPECT_GT(largest, 0);
    EXPECT_EQ((*model)(x).to_vector(), packed) << "the second call";
  }
}

/// The largest difference, of the largest of `expected`.
double error_of(const std::vector<double>& found, const std::vector<double>& expected) {
  double largest = 0, error = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    largest = std::max(largest, std::abs(expected[i]));
    error = std::max(error, std::abs(found[i] - expected[i]));
  }
  return error / largest;
}

TEST_P(Folding, InBf16StaysNearF32AndNearWhatIsNotFolded) {
  const std::int64_t side = image_size(GetParam());
  const nn::ModelOptions full = nn::model_options(GetParam(), {.classes = 10, .image_size = side});
  const ImageSpec images{side, side, full.in_channels, 10};
  const Tensor x = floats({2, side, side, full.in_channels});
  const auto plain = network(GetParam(), images);
  const Predictor half(network(GetParam(), images), model_info(GetParam(), images), Precision::bf16);
  const Tensor logits = half.logits(x);
  EXPECT_EQ(logits.dtype(), DType::f32);
  const std::vector<double> found = logits.to_vector();
  const InferenceMode inference;
  plain->eval();
  EXPECT_LE(error_of(found, (*plain)(x).to_vector()), 5e-2) << "of f32";
  plain->to(DType::bf16);
  EXPECT_LE(error_of(found, (*plain)(cast(x, DType::bf16)).to_vector()), 5e-2) << "of bf16";
}

INSTANTIATE_TEST_SUITE_P(Models, Folding, testing::ValuesIn(test::model_kinds()),
                         [](const auto& tested) { return tested.param; });

TEST(PackedModel, HoldsForItsScopeAndUnchangedWeights) {
  const auto model = network("digits_cnn", kDigits);
  model->eval();
  const Tensor x = floats({2, 8, 8, 1});
  const std::vector<double> plain = (*model)(x).to_vector();
  const PackedModel weights;
  const auto packed = [&] {
    const InferenceMode inference(weights);
    const InferenceMode within;
    return (*model)(x).to_vector();
  };
  const std::vector<double> first = packed();
  EXPECT_EQ((*model)(x).to_vector(), plain);
  EXPECT_TRUE((*model)(x).requires_grad()) << "a gradient still flows to the weights";

  model->to(DType::f64);
  model->to(DType::f32);  // other memory
  EXPECT_EQ(packed(), first);
  model->load_state_dict(network("digits_cnn", kDigits, 2)->state_dict());
  EXPECT_ERROR(ArgumentError, packed(), "conv2d", "PackedModel");
  const PackedModel of_others;
  const InferenceMode inference(of_others);
  EXPECT_NE((*model)(x).to_vector(), first);
}

TEST(PackedModel, NoticesNewStatisticsOfANorm) {
  const auto model = network("digits_cnn", kDigits);
  const Tensor x = floats({2, 8, 8, 1});
  const PackedModel weights;
  const auto packed = [&] {
    model->eval();
    const InferenceMode inference(weights);
    return (*model)(x).to_vector();
  };
  (void)packed();
  model->train();
  (void)(*model)(x);
  EXPECT_ERROR(ArgumentError, packed(), "conv2d", "PackedModel");
}

// 5.03 = 3 (1 + 173 / 256) rounds to 5.03125. Had the weight been rounded before, to 1 + 172 / 256
// = 1.671875, and been folded then, it would be 5.015625 and round to 5.
TEST(PackedModel, RoundsAWeightOnceAfterItIsFolded) {
  const Tensor x = cast(full({1, 1, 1, 2}, 1.0), DType::bf16);
  const Tensor w = Tensor::from(std::vector<float>{1.0f + 173.0f / 256, 0}, {1, 1, 1, 2}),
               rounded = cast(w, DType::bf16).detach();
  const auto one = [](float value) { return Tensor::from(std::vector<float>{value}, {1}); };
  const NormArguments norm{one(3), one(0), one(0), one(1), false, {.eps = 0}};
  const auto folded = [&](bool keep) {
    PackedModel packed;
    if (keep) packed.keep_unrounded(rounded, w);
    const InferenceMode inference(packed);
    return conv_norm(x, {rounded, {}, {}}, norm).to_vector()[0];
  };
  EXPECT_EQ(folded(true), 5.03125);
  EXPECT_EQ(folded(false), 5.0);
}

TEST(PackedModel, DoesNotKeepWhatACallComputes) {
  const Tensor x = floats({1, 8, 8, 4}), w = floats({8, 3, 3, 4}), bias = floats({8}), scale = full({1}, 2.0);
  const PackedModel weights;
  const InferenceMode inference(weights);
  const auto run = [&] {
    (void)conv2d(x, w * scale);
    (void)conv2d(x, w, bias * scale);
  };
  run();
  const std::int64_t before = allocator_of(kCpu).stats().current;
  for (int i = 0; i < 3; ++i) run();
  EXPECT_EQ(allocator_of(kCpu).stats().current, before);
}

TEST(PackedModel, LeavesAnImplementationThatIsAskedFor) {
  const Tensor x = floats({64, 300}), w = floats({64, 300});
  const auto run = [&] { return linear(x, w, {}, Activation::none, MatmulImpl::reference).to_vector(); };
  const std::vector<double> plain = run();
  const PackedModel weights;
  const InferenceMode inference(weights);
  EXPECT_EQ(run(), plain);
}

// Answers --------------------------------------------------------------------------------------------------

TEST(Predictor, GivesTheMostProbableClassesInOrder) {
  const Predictor predictor = of("lenet5", {28, 28, 1, 7});
  const Tensor images = noise_images({3, 28, 28, 1});
  const Predictions found = predictor.predict(images, 7);
  ASSERT_EQ(found.classes.shape(), (Shape{3, 7}));
  const std::vector<double> all = softmax(predictor.logits(images)).to_vector();
  for (std::int64_t i = 0; i < 3; ++i) {
    double sum = 0;
    for (std::int64_t j = 0; j < 7; ++j) {
      const std::int64_t at = i * 7 + j;
      const float probability = found.probabilities.data<float>()[at];
      EXPECT_EQ(probability, float(all[std::size_t(i * 7 + found.classes.data<std::int64_t>()[at])]));
      if (j > 0) {
        EXPECT_LE(probability, found.probabilities.data<float>()[at - 1]);
      }
      sum += probability;
    }
    EXPECT_NEAR(sum, 1, 1e-5);
  }
  EXPECT_EQ(predictor.predict(images, 2).classes.data<std::int64_t>()[1],
            found.classes.data<std::int64_t>()[1]);
}

TEST(Predictor, BringsPicturesOfAnySizeToTheModelsAsValidationDoes) {
  ModelInfo info = model_info("resnet20", kColours);
  info.shorter_side = 20;
  const Predictor predictor(network("resnet20", kColours), info);
  for (const auto& [height, width] : {std::array<std::int64_t, 2>{48, 37}, {9, 70}, {16, 17}}) {
    const Tensor image = noise_images({1, height, width, 3});
    const Tensor expected = Tensor::empty({1, 16, 16, 3}, {DType::u8});
    ImageReader().read(
        {.bytes = {image.raw_data(), image.bytes()}, .height = height, .width = width, .channels = 3},
        {.height = 16, .width = 16, .shorter_side = 20}, {}, 3,
        {expected.data<std::uint8_t>(), expected.bytes()});
    EXPECT_EQ(predictor.logits(image).to_vector(), predictor.logits(expected).to_vector());
  }
}

TEST(Predictor, PadsPicturesWhereItsTrainingDid) {
  ModelInfo info = model_info("resnet20", kColours);
  info.images.width = 24;
  set_resizing(info, {.mode = ResizeMode::pad, .interpolation = Resampling::bicubic, .padding = 3});
  const Predictor predictor(network("resnet20", kColours), info);
  const Tensor image = noise_images({1, 50, 40, 3});
  const Tensor expected = Tensor::empty({1, 16, 24, 3}, {DType::u8});
  ImageReader().read({.bytes = {image.raw_data(), image.bytes()}, .height = 50, .width = 40, .channels = 3},
                     {.height = 16,
                      .width = 24,
                      .mode = ResizeMode::pad,
                      .interpolation = Resampling::bicubic,
                      .padding = 3},
                     {}, 3, {expected.data<std::uint8_t>(), expected.bytes()});
  EXPECT_EQ(expected.data<std::uint8_t>()[0], 3);
  EXPECT_EQ(predictor.logits(image).to_vector(), predictor.logits(expected).to_vector());
}

TEST(Predictor, NormalisesBytesAndTakesFloatsAsTheyAre) {
  const Predictor predictor = of("resnet20", kColours);
  const Tensor image = noise_images({2, 16, 16, 3}), normalised = Tensor::empty({2, 16, 16, 3});
  for (std::int64_t i = 0; i < image.numel(); ++i)
    normalised.data<float>()[i] = float((image.data<std::uint8_t>()[i] / 255.0 - 0.4) / 0.3);
  EXPECT_EQ(predictor.logits(image).to_vector(), predictor.logits(normalised).to_vector());
}

TEST(Predictor, ReadsFilesAndTurnsColoursToGreyWhereTheModelIs) {
  const test::Pixels photo = test::photo(30, 41, 3);
  const std::string png = test::png_of(photo);
  const std::span<const std::byte> file = std::as_bytes(std::span(png));
  const std::array<std::span<const std::byte>, 2> files{file, file};
  const Predictor colours = of("resnet20", kColours), digits = of("digits_cnn", kDigits);
  const Tensor raw = Tensor::from(photo.bytes, {1, 30, 41, 3});
  for (const Predictor* predictor : {&colours, &digits}) {
    const Predictions found = predictor->predict(files, 3), expected = predictor->predict(raw, 3);
    EXPECT_EQ(found.classes.shape(), (Shape{2, 3}));
    for (int i = 0; i < 6; ++i) {
      EXPECT_EQ(found.classes.data<std::int64_t>()[i], expected.classes.data<std::int64_t>()[i % 3]);
      EXPECT_NEAR(found.probabilities.data<float>()[i], expected.probabilities.data<float>()[i % 3], 1e-6);
    }
  }
  std::vector<std::uint8_t> grey(64), equal(64);
  digits.read(file, grey);
  ImageReader reader;
  std::vector<std::uint8_t> rgb(192);
  reader.read({.bytes = file, .codec = Codec::png}, {.height = 8, .width = 8}, {}, 3, rgb);
  for (std::size_t i = 0; i < 64; ++i)
    equal[i] = std::uint8_t((299 * rgb[3 * i] + 587 * rgb[3 * i + 1] + 114 * rgb[3 * i + 2] + 500) / 1000);
  EXPECT_EQ(grey, equal);
}

TEST(Predictor, LoadsWhatARunLeaves) {
  const test::TempDir dir;
  const auto model = network("digits_cnn", kDigits);
  ModelInfo info = model_info("digits_cnn", kDigits);
  for (int i = 0; i < 10; ++i) info.class_names.push_back(fmt::format("digit {}", i));
  save_model(dir / "model.safetensors", info, model->state_dict());
  const Predictor loaded(dir / "model.safetensors"), of_folder(dir / "");
  const Tensor images = noise_images({4, 8, 8, 1});
  const Predictor expected(network("digits_cnn", kDigits), info);
  EXPECT_EQ(loaded.logits(images).to_vector(), expected.logits(images).to_vector());
  EXPECT_EQ(of_folder.logits(images).to_vector(), expected.logits(images).to_vector());
  EXPECT_EQ(loaded.class_name(3), "digit 3");
  EXPECT_EQ(of("digits_cnn", kDigits).class_name(3), "3");
  EXPECT_ERROR(ArgumentError, loaded.class_name(10), "predictor", "[0, 10)", "10");
}

TEST(Predictor, RejectsUnusableInputs) {
  const Predictor predictor = of("resnet20", kColours);
  const auto predict = [&](const Tensor& images, std::int64_t top = 1) {
    return predictor.predict(images, top);
  };
  EXPECT_ERROR(ArgumentError, predict(noise_images({1, 16, 16, 3}), 11), "predict", "[1, 10]", "11");
  EXPECT_ERROR(ArgumentError, predict(noise_images({16, 16, 3})), "predict", "[N, H, W, C]",
               "u8 [16, 16, 3]");
  EXPECT_ERROR(ArgumentError, predict(noise_images({1, 16, 16, 4})), "predict", "3", "[1, 16, 16, 4]");
  EXPECT_ERROR(ArgumentError, predict(floats({1, 15, 16, 3})), "predict", "[1, 16, 16, 3]", "[1, 15, 16, 3]");
  EXPECT_ERROR(ArgumentError, predict(Tensor()), "predict", "[N, H, W, C]", "undefined");
  const std::array<std::byte, 5> junk{};
  const std::array<std::span<const std::byte>, 1> files{junk};
  EXPECT_ERROR(IoError, predictor.predict(files), "predict", "file 0");
  auto diverged = network("resnet20", kColours);
  diverged->parameters()[3].tensor.detach().data<float>()[5] = std::numeric_limits<float>::quiet_NaN();
  const std::string name = diverged->parameters()[3].name;
  EXPECT_ERROR(ArgumentError, Predictor(std::move(diverged), model_info("resnet20", kColours)), "predictor",
               "'" + name + "'");
  auto eleven = network("resnet20", {16, 16, 3, 11});
  const Predictor wrong(std::move(eleven), model_info("resnet20", kColours));
  EXPECT_ERROR(ArgumentError, wrong.predict(noise_images({1, 16, 16, 3})), "predict", "[N, 10]", "[1, 11]");
}

// Threads, memory ------------------------------------------------------------------------------------------

class InPrecision : public testing::TestWithParam<Precision> {
 protected:
  static Predictor of(const std::string& name, const ImageSpec& images) {
    return Predictor(network(name, images), model_info(name, images), GetParam());
  }
};
INSTANTIATE_TEST_SUITE_P(Predictor, InPrecision,
                         testing::Values(Precision::f32, Precision::bf16, Precision::f16),
                         [](const auto& tested) { return std::string(name_of(tested.param)); });

TEST_P(InPrecision, AnswersEightThreadsAsItAnswersOne) {
  const int kernel_threads = cpu_context().threads();
  cpu_context().set_threads(1);
  const Predictor predictor = of("digits_cnn", kDigits), expected = of("digits_cnn", kDigits);
  constexpr int kThreads = 8, kCalls = 20;
  std::vector<std::vector<double>> want;
  for (int i = 0; i < kThreads; ++i)
    want.push_back(expected.logits(noise_images({1, 8, 8, 1}, std::uint64_t(100 + i))).to_vector());
  std::latch start(kThreads);
  std::array<int, kThreads> wrong{};
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      cpu_context().set_threads(1);
      const Tensor mine = noise_images({1, 8, 8, 1}, std::uint64_t(100 + i));
      start.arrive_and_wait();  // the first calls, which pack the weights, come at once
      for (int call = 0; call < kCalls; ++call)
        wrong[std::size_t(i)] += predictor.logits(mine).to_vector() != want[std::size_t(i)];
    });
  }
  for (std::thread& thread : threads) thread.join();
  cpu_context().set_threads(kernel_threads);
  EXPECT_EQ(wrong, (std::array<int, kThreads>{}));
}

TEST_P(InPrecision, GivesNumbersFarFromZeroToAPartOfTheirDeviation) {
  const Tensor images = noise_images({4, 8, 8, 1});
  ModelInfo info = model_info("digits_cnn", kDigits);
  info.task = LabelKind::values;
  const Predictor standard(network("digits_cnn", kDigits), info);  // numbers of about mean 0 and deviation 1
  info.output_mean.assign(10, -500000);
  info.output_scale.assign(10, 20);
  auto scaled = network("digits_cnn", kDigits);
  nn::scale_outputs(*scaled, info.output_mean, info.output_scale);
  const Predictor predictor(std::move(scaled), info, GetParam());
  const std::vector<double> found = predictor.logits(images).to_vector(),
                            wanted = standard.logits(images).to_vector();
  ASSERT_EQ(found.size(), wanted.size());
  for (std::size_t i = 0; i < found.size(); ++i) EXPECT_NEAR((found[i] + 500000) / 20, wanted[i], 0.05) << i;
}

// The least that any order of freeing could need: at the worst moment, an op's inputs, its result, and what
// is still to be read. The image is the caller's; what oneDNN works in is the context's.
TEST(Predictor, HoldsNoMoreActivationsThanAreStillToBeRead) {
  struct Least {
    const char* model;
    ImageSpec images;
    std::int64_t n, floats;  // of one image
  };
  // LeNet-5: conv1, its pooling and the ReLU's result, or, where these are one pass, the first result and the
  // second.
  const std::int64_t lenet = cpu::has_avx2() ? 14 * 14 * 6 + 5 * 5 * 16 : 28 * 28 * 6 + 2 * 14 * 14 * 6;
  const Least all[] = {
      {"lenet5", {28, 28, 1, 10}, 1, lenet},
      {"resnet20", {32, 32, 3, 10}, 1, 3 * 32 * 32 * 16},                   // a block: x, between, result
      {"resnet18_cifar", {32, 32, 3, 10}, 1, 3 * 32 * 32 * 64},             // the same
      {"resnet18", {224, 224, 3, 10}, 10, 112 * 112 * 64 + 56 * 56 * 64}};  // conv1 and its pooling
  for (const auto& [model, images, n, floats] : all) {
    const Predictor predictor = of(model, images);
    const Tensor x = noise_images({n, images.height, images.width, images.channels});
    predictor.logits(x);
    allocator_of(kCpu).reset_peak();
    predictor.logits(x);
    const auto least = static_cast<double>(n * floats) * sizeof(float);
    const auto peak = static_cast<double>(allocator_of(kCpu).stats().peak_by_tag["activations"]);
    EXPECT_LE(peak, 1.1 * least) << model << ": " << peak / least;
    EXPECT_GE(peak, least) << model;
  }
}

/// A repeated call calls no operator new and compiles no primitive.
void expect_warm(const Predictor& predictor) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the pool is off under sanitizers";
#endif
  const Tensor images = noise_images({1, 16, 16, 3}), large = noise_images({1, 40, 30, 3});
  const auto ask = [&] {
    predictor.predict(images, 3);
    predictor.predict(large, 3);
  };
  for (int i = 0; i < 3; ++i) ask();
  const std::int64_t primitives = primitives_created(), growths = allocator_of(kCpu).stats().growths,
                     news = test::operator_news();
  for (int i = 0; i < 5; ++i) ask();
  EXPECT_EQ(test::operator_news() - news, 0);
  EXPECT_EQ(primitives_created() - primitives, 0);
  EXPECT_EQ(allocator_of(kCpu).stats().growths - growths, 0);
  const int kernel_threads = cpu_context().threads();
  std::thread([&] {
    cpu_context().set_threads(kernel_threads);
    ask();
  }).join();
  EXPECT_EQ(primitives_created() - primitives, 0) << "another thread finds the first one's primitives";
}

TEST_P(InPrecision, AWarmCallAllocatesNothingAndCompilesNothing) {
  expect_warm(of("resnet20", kColours));
}

TEST(Predictor, AWarmCallOfAQuantizedNetworkAllocatesNothing) {
  const auto floats = network("mobilenet_v3_small", kColours);
  nn::Calibration calibration(*floats, {16, 16, 3});
  calibration.observe(randn({2, 16, 16, 3}, {1, 1}));
  expect_warm(Predictor(nn::quantize(calibration), model_info("mobilenet_v3_small", kColours)));
}

}  // namespace athanor::predictor_test
