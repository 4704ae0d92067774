// Choices between implementations of convolutions: measured once, written and read as text, and used.
#include "kernels/conv_choices.h"

#include <thread>

#include "kernels/cpu/context.h"
#include "tests/support/conv_values.h"
#include "tests/support/waves.h"

namespace athanor::conv_choices_test {

using test::ConvCase;
using test::same_bits;

const ConvCase kCase{{4, 12, 12, 16}, {16, 3, 3, 16}, {.padding = {1, 1}}};
const ConvCase kStrided{{4, 12, 12, 16}, {32, 3, 3, 16}, {.stride = {2, 2}, .padding = {1, 1}}};

/// Sums of such values depend on their order.
Tensor wavy(const Shape& shape, double phase, DType dtype = DType::f32) {
  return test::cast_to(test::wave(shape, 0, phase), dtype);
}

using Results = std::vector<Tensor>;

Results run(const ConvCase& c, ConvImpl impl = ConvImpl::automatic, DType dtype = DType::f32) {
  const auto wave = [](const Shape& shape, DType of, int seed) { return wavy(shape, seed, of); };
  return test::ConvOperands(c, dtype, wave).passes(c.params, impl);
}

void expect_same(const Results& a, const Results& b) {
  for (std::size_t i = 0; i < a.size(); ++i) EXPECT_TRUE(same_bits(a[i], b[i])) << i;
}

/// The current choices, all of them for `impl`.
std::string all_by(const std::string& impl) {
  std::string text;
  std::string line;
  for (const char c : conv_choices()) {
    if (c != '\n') {
      line += c;
      continue;
    }
    text += line.substr(0, line.rfind(' ') + 1) + impl + "\n";
    line.clear();
  }
  return text;
}

class ConvChoices : public testing::Test {
 protected:
  void SetUp() override { set_conv_choices(""); }
  void TearDown() override { set_conv_choices(""); }
};

TEST_F(ConvChoices, AreNotMadeUnlessMeasured) {
  run(kCase);
  EXPECT_EQ(conv_choices(), "");
}

TEST_F(ConvChoices, AreMeasuredOnceForEachPassDtypeAndShape) {
  const Results reference = run(kCase, ConvImpl::reference);
  Results first;
  {
    const MeasureConvs measure;
    first = run(kCase);
    EXPECT_EQ(std::ranges::count(conv_choices(), '\n'), 3);
    run(kCase, ConvImpl::automatic, DType::bf16);
    run(kStrided);
    // Of bf16, weights whose gradients are summed in f32, too.
    EXPECT_EQ(std::ranges::count(conv_choices(), '\n'), 10);
    const std::string before = conv_choices();
    expect_same(first, run(kCase));
    EXPECT_EQ(conv_choices(), before);
  }
  for (std::size_t i = 0; i < first.size(); ++i) EXPECT_TRUE(test::close(first[i], reference[i], 1e-4));
  const std::string text = conv_choices();
  run({{1, 5, 5, 2}, {3, 3, 3, 2}, {}});
  EXPECT_EQ(conv_choices(), text) << "outside the scope nothing is measured";
  set_conv_choices("");
  set_conv_choices(text);
  EXPECT_EQ(conv_choices(), text);
  expect_same(first, run(kCase));
}

TEST_F(ConvChoices, AreUsed) {
  const Results by_rule = run(kCase), reference = run(kCase, ConvImpl::reference);
  if (same_bits(by_rule[0], reference[0])) GTEST_SKIP() << "this machine has one implementation";
  {
    const MeasureConvs measure;
    run(kCase);
  }
  set_conv_choices(all_by("reference"));
  expect_same(run(kCase), reference);
  set_conv_choices(all_by("automatic"));
  expect_same(run(kCase), by_rule);
}

TEST_F(ConvChoices, OfAnotherMachineAreIgnored) {
  const Results by_rule = run(kStrided);
  {
    const MeasureConvs measure;
    run(kStrided);
  }
  set_conv_choices(all_by("winograd"));  // which no machine has for strides
  expect_same(run(kStrided), by_rule);
}

TEST_F(ConvChoices, HoldForAddedGradientsToo) {
  {
    const MeasureConvs measure;
    run(kCase);
  }
  const Results once = run(kCase);
  const Tensor x = wavy(kCase.x, 1), w = wavy(kCase.w, 2);
  const Tensor dy = wavy(conv2d_shape(kCase.x, kCase.w, kCase.params), 3);
  for (const char* impl : {"reference", "vendor", "direct", "winograd"}) {
    set_conv_choices(all_by(impl));
    const Tensor dx = Tensor::zeros(kCase.x), dw = Tensor::zeros(kCase.w);
    for (int i = 0; i < 2; ++i) {
      kernels::conv2d_backward_data(cpu_context(), kCase.params, dy, w, dx, Write::accumulate);
      kernels::conv2d_backward_weights(cpu_context(), kCase.params, x, dy, dw, Write::accumulate, {}, {});
    }
    for (const auto& [twice, one] : {std::pair(dx, once[1]), {dw, once[2]}}) {
      const std::vector<double> a = twice.to_vector(), b = one.to_vector();
      for (std::size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a[i], 2 * b[i], 2e-3) << impl << " at " << i;
    }
  }
}

TEST_F(ConvChoices, MayChangeWhileOtherThreadsCompute) {
  std::string text;
  {
    const MeasureConvs measure;
    run(kCase);
    text = conv_choices();
  }
  set_conv_choices("");
  const Results by_rule = run(kCase);
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([&] {
      cpu_context().set_threads(1);
      const MeasureConvs measure;
      for (int pass = 0; pass < 2; ++pass) EXPECT_TRUE(test::close(run(kCase)[0], by_rule[0], 1e-4));
    });
  }
  for (int i = 0; i < 20; ++i) set_conv_choices(i % 2 == 0 ? text : "");
  for (std::thread& thread : threads) thread.join();
}

TEST_F(ConvChoices, TextOfAnotherFormIsRefused) {
  {
    const MeasureConvs measure;
    run(kCase);
  }
  const std::string text = conv_choices(), line = text.substr(0, text.find('\n')),
                    pass = line.substr(0, line.find(' '));
  for (const std::string& bad :
       {std::string("winograd"), line + " 1", line.substr(0, line.rfind(' ')), "x" + line, line + "s",
        "  " + line, pass + " f33" + line.substr(line.find(' ', pass.size() + 1)), std::string("\n")}) {
    EXPECT_FALSE(are_conv_choices(bad)) << bad;
    EXPECT_TRUE(test::holds(test::message_of([&] { set_conv_choices(bad); }), "set_conv_choices")) << bad;
    EXPECT_EQ(conv_choices(), text) << "what was chosen stays";
  }
  EXPECT_TRUE(are_conv_choices(text));
}

}  // namespace athanor::conv_choices_test
