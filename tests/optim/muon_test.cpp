#include "optim/muon.h"

#include <algorithm>

#include <gtest/gtest.h>

#include "nn/models/convnext.h"
#include "nn/models/vision_transformer.h"
#include "tests/support/optim_training.h"

namespace athanor::muon_test {

using test::bytes_of;
using test::deliver;
using test::filled;
using test::noise;
using test::OptimModel;

// With many iterations the singular values of the update settle around 1, whatever those of the gradient.
TEST(Muon, UpdatesAreNearlyOrthogonalForWideAndTallMatrices) {
  for (const Shape& shape : {Shape{4, 9}, Shape{9, 4}, Shape{5, 5}}) {
    std::vector<float> zeros(static_cast<std::size_t>(shape.numel())), gradient;
    for (std::int64_t i = 0; i < shape.numel(); ++i) gradient.push_back(noise(i));
    const Tensor w = filled(shape, zeros);
    ParameterArena arena({{"w", w}}, {});
    // Coefficients whose iteration converges to 1 exactly (the Pade-like 15/8, -10/8, 3/8).
    Muon muon(
        arena,
        {Muon::Group{{},
                     {.scale = MuonScale::none, .coefficients = {1.875f, -1.25f, 0.375f}, .iterations = 40}}},
        0, nullptr);
    StepBuffer state;
    state->learning_rate[0] = 1;
    deliver(w, gradient);
    muon.step(state);
    const std::int64_t rows = shape[0], columns = shape[1], side = std::min(rows, columns);
    const float* x = w.data<float>();
    for (std::int64_t i = 0; i < side; ++i) {
      for (std::int64_t j = 0; j < side; ++j) {
        double dot = 0;
        for (std::int64_t k = 0; k < std::max(rows, columns); ++k) {
          dot += rows <= columns ? double(x[i * columns + k]) * x[j * columns + k]
                                 : double(x[k * columns + i]) * x[k * columns + j];
        }
        EXPECT_NEAR(dot, i == j ? 1 : 0, 1e-4);
      }
    }
  }
}

TEST(Muon, ScalesAndNormalizesByShape) {
  const auto change = [](const MuonOptions& options) {
    const Tensor w = filled({4, 1}, {3, 0, 4, 0});
    ParameterArena arena({{"w", w}}, {});
    Muon muon(arena, {Muon::Group{{}, options}}, 0, nullptr);
    StepBuffer state;
    state->learning_rate[0] = 1;
    deliver(w, {0, 1, 0, 0});
    muon.step(state);
    return w.to_vector();
  };
  const MuonOptions plain{.scale = MuonScale::none, .coefficients = {1.875f, -1.25f, 0.375f}};
  MuonOptions original = plain, rms = plain, normalized = plain, decay = plain;
  original.scale = MuonScale::original;
  rms.scale = MuonScale::rms;
  normalized.normalize_weights = true;
  decay.weight_decay = 0.5f;
  EXPECT_NEAR(change(plain)[1], -1, 1e-6);
  EXPECT_NEAR(change(original)[1], -2, 1e-6);
  EXPECT_NEAR(change(rms)[1], -0.4, 1e-6);
  EXPECT_NEAR(change(normalized)[0], 3 * 2 / 5.0, 1e-6);
  EXPECT_NEAR(change(normalized)[2], 4 * 2 / 5.0, 1e-6);
  EXPECT_NEAR(change(decay)[2], 2, 1e-6);
}

// Matrices of one shape are worked on together, as many as fit; alone each becomes the same. Sizes: many to a
// batch, with a batch left over; three, of which one fits at a time; tall; bf16 weights beside f32 ones. Some
// have no gradient, and take part again later.
TEST(Muon, AMatrixDoesNotDependOnItsBatch) {
  struct Case {
    Shape shape;
    int count;
    Precision precision;
  };
  for (const Case& one : {Case{{16, 3, 3, 16}, 9, Precision::f32}, Case{{96, 192}, 33, Precision::bf16},
                          Case{{600, 450}, 3, Precision::f32}, Case{{40, 8}, 5, Precision::f16}}) {
    const Shape& shape = one.shape;  // Clang 14 lets no lambda capture a structured binding
    const int count = one.count;
    const Precision precision = one.precision;
    for (const DType dtype : {DType::f32, DType::bf16}) {
      SCOPED_TRACE(fmt::format("{} {} {}", shape, precision == Precision::f32, dtype));
      const MuonOptions options{.weight_decay = 0.1f, .normalize_weights = count == 9, .dtype = dtype};
      const auto numel = static_cast<std::size_t>(shape.numel());
      const auto values = [&](int i, int t) {
        std::vector<float> all;
        for (std::size_t k = 0; k < numel; ++k)
          all.push_back(noise(static_cast<std::int64_t>(k) + i * 77 + t));
        return all;
      };
      const auto has_gradient = [](int i, int t) { return t != 1 || i % 3 != 1; };
      const auto train = [&](int first, int last) {
        std::vector<Parameter> parameters;
        for (int i = first; i < last; ++i) {
          parameters.push_back({std::to_string(i), filled(shape, values(i, 0)), i % 4 == 3});
        }
        ParameterArena arena(parameters, {}, {.precision = precision});
        Muon muon(arena, {Muon::Group{{}, options}}, 0, nullptr);
        StepBuffer state;
        state->learning_rate[0] = 0.1f;
        for (int t = 0; t < 3; ++t) {
          arena.zero_grad();
          for (int i = first; i < last; ++i) {
            if (has_gradient(i, t)) {
              leaf_of(parameters[static_cast<std::size_t>(i - first)].tensor)
                  .accumulate(Tensor::from(values(i, t), shape));
            }
          }
          muon.step(state);
        }
        std::vector<std::vector<std::byte>> results;
        for (int i = first; i < last; ++i) results.push_back(bytes_of(arena.master(i - first)));
        return results;
      };
      const auto together = train(0, count);
      for (int i = 0; i < count; ++i) {
        EXPECT_EQ(together[static_cast<std::size_t>(i)], train(i, i + 1)[0]) << i;
      }
    }
  }
}

TEST(Muon, GroupsOfOneShapeKeepTheirRates) {
  const Tensor a = filled({2, 2}, {1, 2, 3, 4}), b = filled({2, 2}, {1, 2, 3, 4});
  ParameterArena arena({{"a", a}, {"b", b}}, {});
  Muon muon(arena, {Muon::Group{{.parameters = selectors::named({"a"})}, {}}, Muon::Group{}}, 0, nullptr);
  StepBuffer state;
  state->learning_rate[0] = 0.5f;
  state->learning_rate[1] = 0.25f;
  deliver(a, {1, 0, 0, 2});
  deliver(b, {1, 0, 0, 2});
  muon.step(state);
  EXPECT_NE(a.data<float>()[0], 1);
  for (int i = 0; i < 4; ++i) {
    const float start = static_cast<float>(i + 1);
    EXPECT_NEAR(a.data<float>()[i] - start, 2 * (b.data<float>()[i] - start), 1e-6);
  }
}

// Tokens, embeddings and scales have the shape of a matrix, and are none.
TEST(Muon, TakesTheWeightsOfLayersAlone) {
  const nn::ModelOptions size{3, 3, 32};
  const nn::VisionTransformer vit(size, {.patch = 16, .layers = 1, .heads = 1, .width = 4, .mlp = 8});
  const nn::ConvNeXt convnext(size, {.blocks = {1, 1, 1, 1}, .widths = {2, 2, 2, 2}});
  for (const nn::Module* model :
       {static_cast<const nn::Module*>(&vit), static_cast<const nn::Module*>(&convnext)}) {
    ParameterArena arena(model->parameters(), {});
    const Muon muon(arena, {}, AdamWOptions{}, 0.1f);
    const StateDict state = muon.state_dict();
    int matrices = 0;
    for (const Parameter& parameter : arena.parameters()) {
      const bool is_weight = parameter.name.ends_with("weight") && parameter.tensor.rank() >= 2;
      matrices += is_weight;
      EXPECT_EQ(state.contains("momentum." + parameter.name), is_weight) << parameter.name;
      EXPECT_EQ(state.contains("rest.first_moment." + parameter.name), !is_weight) << parameter.name;
    }
    EXPECT_GT(matrices, 5);
  }
}

TEST(Muon, EveryParameterMustBeSelectedOnceAndMatricesAlone) {
  const OptimModel model;
  ParameterArena arena(model.parameters, {});
  EXPECT_THROW(Muon(arena, {Muon::Group{}}, 0, nullptr), ArgumentError) << "vectors are no matrices";
  EXPECT_THROW(Muon(arena, {Muon::Group{{.parameters = selectors::matrices()}, {}}}, 0, nullptr),
               ArgumentError);
  EXPECT_THROW(
      Muon(arena, {Muon::Group{{.parameters = selectors::matrices()}, {}}}, 0, std::make_unique<Sgd>(arena)),
      ArgumentError)
      << "selected twice";
  EXPECT_THROW(Muon(arena, {.iterations = 0}, SgdOptions{}, 1), ArgumentError);
  EXPECT_THROW(Muon(arena, {.dtype = DType::f64}, SgdOptions{}, 1), ArgumentError);
  const Muon muon(arena, {}, SgdOptions{}, 0.5f);
  EXPECT_EQ(muon.selected(), (std::vector<int>{0, 1, 2, 3, 4}));
  StepBuffer state;
  muon.set_learning_rates(state, schedules::constant(0.2));
  EXPECT_FLOAT_EQ(state->learning_rate[0], 0.2f);
  EXPECT_FLOAT_EQ(state->learning_rate[1], 0.1f);
}

}  // namespace athanor::muon_test
