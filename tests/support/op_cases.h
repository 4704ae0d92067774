#pragma once

// Ops with inputs that show every part of their backward passes: one list, for every device.

#include "autograd/attention.h"
#include "autograd/conv_transpose.h"
#include "autograd/dropout.h"
#include "autograd/interpolate.h"
#include "autograd/scalar_ops.h"
#include "autograd/similarity.h"
#include "autograd/softmax.h"
#include "autograd/topk.h"
#include "tests/support/activations.h"
#include "tests/support/ops.h"

namespace athanor::test {

struct OpCase {
  std::string name;
  std::vector<Shape> shapes;  ///< of the inputs
  std::function<Tensor(In)> run;
  double low = -1, high = 1;               ///< of their elements
  std::function<Tensor(In)> same_as = {};  ///< the same by other ops, if there are some

  friend std::ostream& operator<<(std::ostream& to, const OpCase& c) { return to << c.name; }
};

/// Ops that export_onnx() refuses: those of training alone, and others without a function in nn/onnx/.
inline constexpr std::string_view kNotInOnnx[] = {
    "bce_with_logits", "cross_entropy", "dropout",  "kl_div",
    "max_unpool2d",    "mse_loss",      "nll_loss", "smooth_l1_loss",
};

/// Indices, where x is.
inline Tensor indices_at(const Tensor& x, const std::vector<std::int64_t>& values, const Shape& shape) {
  return Tensor::from(values, shape, x.device());
}
/// Classes of 4 samples, where x is.
inline Tensor targets_at(const Tensor& x) {
  return indices_at(x, {2, 0, 1, 2}, {4});
}
/// [2, 1] bool, one of each, where x is.
inline Tensor condition_at(const Tensor& x) {
  return cast(indices_at(x, {1, 0}, {2, 1}), DType::boolean);
}

/// Ops that are no instances of one functor: each whose backward pass is written by hand.
inline std::vector<OpCase> op_cases() {
  const Conv2dParams strided{.stride = {2, 1}, .padding = {1, 1}, .dilation = {1, 2}};
  const Conv2dParams depthwise{.padding = {1, 1}, .groups = 4};
  const Conv2dParams grouped{.groups = 2, .activation = Activation::silu};
  const ConvTranspose2dParams upwards{.stride = {2, 1}, .padding = {1, 0}, .output_padding = {1, 0}};
  std::vector<OpCase> all{
      {"add_broadcast", {{3, 4}, {4}}, [](In in) { return add(in[0], in[1]); }},
      {"div_broadcast", {{3, 1}, {4}}, [](In in) { return div(in[0], affine(square(in[1]), 1, 1)); }},
      {"affine", {{3, 2}}, [](In in) { return affine(in[0], -1.5, 4); }},
      {"conv_transpose2d",
       {{2, 3, 2, 3}, {3, 3, 2, 4}, {4}},
       [=](In in) { return conv_transpose2d(in[0], in[1], in[2], upwards); }},
      {"conv_transpose2d_padded",
       {{1, 3, 2, 2}, {2, 3, 3, 3}},
       [](In in) {
         return conv_transpose2d(in[0], in[1], {},
                                 {.stride = {2, 2}, .padding = {1, 1}, .output_padding = {1, 0}});
       }},
      {"conv_transpose2d_grouped",
       {{2, 2, 3, 4}, {4, 2, 3, 1}, {2}},
       [](In in) {
         return conv_transpose2d(in[0], in[1], in[2], {.stride = {1, 2}, .padding = {0, 1}, .groups = 2});
       }},
      {"conv_transpose2d_dilated",
       {{1, 2, 2, 1}, {1, 2, 2, 2}, {2}},
       [](In in) {
         return conv_transpose2d(in[0], in[1], in[2],
                                 {.output_padding = {2, 1}, .dilation = {3, 2}, .impl = ConvImpl::reference});
       }},
      {"layer_norm", {{3, 5}, {5}, {5}}, [](In in) { return layer_norm(in[0], in[1], in[2]); }},
      {"layer_norm_of_two_axes",
       {{2, 3, 5}, {3, 5}, {3, 5}},
       [](In in) { return layer_norm(in[0], in[1], in[2], 1e-5, 2); }},
      {"layer_norm_bare", {{2, 3, 5}}, [](In in) { return layer_norm(in[0]); }},
      {"group_norm", {{2, 2, 3, 4}, {4}, {4}}, [](In in) { return group_norm(in[0], 2, in[1], in[2]); }},
      {"group_norm_of_each", {{2, 3, 4}, {4}}, [](In in) { return group_norm(in[0], 4, {}, in[1]); }},
      {"group_norm_of_rows", {{3, 6}, {6}}, [](In in) { return group_norm(in[0], 2, in[1]); }},
      {"instance_norm", {{2, 3, 2, 4}}, [](In in) { return instance_norm(in[0]); }},
      {"instance_norm_affine",
       {{2, 2, 3, 4}, {4}, {4}},
       [](In in) { return instance_norm(in[0], in[1], in[2]); }},
      {"batch_norm_bare", {{5, 2}}, [](In in) { return batch_norm(in[0], {}, {}, {}, {}, true); }},
      {"max_pool2d", {{1, 6, 5, 2}}, [](In in) { return max_pool2d(in[0]); }},
      {"max_pool2d_padded",
       {{1, 5, 5, 2}},
       [](In in) {
         return max_pool2d(in[0], {.window = {3, 3}, .padding = {1, 1}, .ceil_mode = true});
       }},
      {"max_pool2d_dilated",
       {{1, 5, 6, 2}},
       [](In in) {
         return max_pool2d(in[0], {.stride = {1, 1}, .dilation = {2, 3}});
       }},
      {"avg_pool2d", {{2, 4, 5, 3}}, [](In in) { return avg_pool2d(in[0]); }},
      {"avg_pool2d_padded",
       {{1, 5, 5, 2}},
       [](In in) {
         return avg_pool2d(in[0],
                           {.window = {3, 3}, .padding = {1, 1}, .ceil_mode = true, .count_padding = false});
       }},
      {"adaptive_avg_pool2d", {{1, 5, 4, 2}}, [](In in) { return adaptive_avg_pool2d(in[0], 3, 3); }},
      {"adaptive_avg_pool2d_global", {{2, 5, 4, 2}}, [](In in) { return adaptive_avg_pool2d(in[0], 1, 1); }},
      {"adaptive_avg_pool2d_repeats", {{1, 5, 4, 2}}, [](In in) { return adaptive_avg_pool2d(in[0], 9, 2); }},
      {"max_unpool2d",
       {{1, 2, 2, 1}},
       [](In in) {
         return max_unpool2d(in[0], reshape(targets_at(in[0]), {1, 2, 2, 1}), 2, 3);
       }},
      {"interpolate_nearest",
       {{1, 3, 4, 2}},
       [](In in) {
         return interpolate(in[0], {.size = {5, 3}});
       }},
      {"interpolate_bilinear",
       {{1, 3, 4, 2}},
       [](In in) {
         return interpolate(in[0], {.mode = Interpolation::bilinear, .scale = {1.7, 2}});
       }},
      {"pixel_shuffle", {{2, 2, 4, 8}}, [](In in) { return pixel_shuffle(in[0], 2); }},
      {"pixel_unshuffle", {{2, 2, 4, 2}}, [](In in) { return pixel_unshuffle(in[0], 2); }},
      {"cross_entropy", {{4, 3}}, [](In in) { return cross_entropy(in[0], targets_at(in[0]), 0.1f); }},
      {"cross_entropy_distribution",
       {{4, 3}, {4, 3}},
       [](In in) { return cross_entropy(in[0], in[1], 0.1); }},
      {"cross_entropy_ignored",
       {{4, 3}},
       [](In in) { return cross_entropy(in[0], targets_at(in[0]), {.ignore_index = 1}); }},
      {"bce_with_logits", {{3, 4}, {3, 4}}, [](In in) { return bce_with_logits(in[0], in[1]); }},
      {"kl_div_batchmean",
       {{4, 3, 2}, {4, 3, 2}},
       [](In in) { return kl_div(in[0], in[1], false, KlReduction::batchmean); },
       0.1},
      {"smooth_l1_loss", {{3, 4}, {3, 4}}, [](In in) { return smooth_l1_loss(in[0], in[1], 0.5); }},
      {"nt_xent_loss", {{3, 4}, {3, 4}}, [](In in) { return nt_xent_loss(in[0], in[1], 0.3); }},
      {"attention",
       {{2, 3, 4}, {2, 5, 4}, {5, 3}},
       [](In in) { return scaled_dot_product_attention(in[0], in[1], in[2]); }},
      {"attention_causal",
       {{2, 3, 4}, {2, 5, 4}, {2, 5, 3}},
       [](In in) { return scaled_dot_product_attention(in[0], in[1], in[2], {.causal = true}); }},
      {"attention_mask",
       {{2, 3, 4}, {2, 5, 4}, {5, 3}},
       [](In in) {
         const Tensor mask = filled({{3, 5}}, DType::boolean, {5}).to(in[0].device());
         return scaled_dot_product_attention(in[0], in[1], in[2], {.mask = mask});
       }},
      {"attention_added",
       {{2, 3, 4}, {2, 5, 4}, {5, 3}, {3, 1}},
       [](In in) { return scaled_dot_product_attention(in[0], in[1], in[2], {.mask = in[3]}); }},
      {"max_of_all", {{4, 5}}, [](In in) { return max(in[0]); }},
      {"sum_of_all", {{3, 4, 2}}, [](In in) { return square(sum(in[0])); }},
      {"sum_of_two_axes",
       {{2, 3, 4, 5}},
       [](In in) {
         return sum(in[0], std::array{1, 3}, true);
       }},
      {"mean_of_all", {{3, 4, 2}}, [](In in) { return mean(in[0]); }},
      {"var_of_two_axes",
       {{3, 4, 5}},
       [](In in) {
         return var(in[0], std::array{0, 2});
       }},
      {"var_of_all", {{3, 4, 2}}, [](In in) { return var(in[0], {}, 0); }},
      {"permute",
       {{2, 3, 4}},
       [](In in) {
         return permute(in[0], {2, 0, 1});
       }},
      {"reshape",
       {{2, 3, 4}},
       [](In in) {
         return reshape(in[0], {4, 6});
       }},
      {"reshape_transposed",
       {{2, 3, 4}},
       [](In in) {
         return reshape(transpose(in[0], 0, 2), {6, 4});
       }},
      {"clone", {{2, 3, 4}}, [](In in) { return clone(transpose(in[0], 1, 2)); }},
      {"narrow", {{2, 3, 4}}, [](In in) { return narrow(in[0], 1, 1, 2); }},
      {"narrow_to_nothing", {{2, 3, 4}}, [](In in) { return narrow(in[0], 1, 1, 0); }},
      {"select", {{2, 3, 4}}, [](In in) { return select(in[0], 2, 3); }},
      {"squeeze", {{2, 1, 4}}, [](In in) { return squeeze(in[0], 1); }},
      {"unsqueeze", {{2, 3, 4}}, [](In in) { return unsqueeze(in[0], 1); }},
      {"expand",
       {{3, 1, 2}},
       [](In in) {
         return square(expand(in[0], {2, 3, 4, 2}));
       }},
      {"expand_to_nothing",
       {{3, 1, 2}},
       [](In in) {
         return expand(in[0], {2, 3, 0, 2});
       }},
      {"cat_of_many",
       {{2, 1, 3}, {2, 2, 3}, {2, 0, 3}, {2, 1, 3}, {2, 3, 3}, {2, 1, 3}, {2, 2, 3}, {2, 1, 3}},
       [](In in) { return cat(in, 1); }},
      {"cat_reused",
       {{2, 3}, {2, 1}},
       [](In in) {
         return cat(std::array{in[0], in[1], in[0]}, -1);
       }},
      {"stack_reused",
       {{2, 3}, {2, 3}},
       [](In in) {
         return stack(std::array{in[0], in[1], in[0]}, 1);
       }},
      {"index_select_nothing",
       {{3, 4}},
       [](In in) { return index_select(in[0], 0, indices_at(in[0], {}, {0})); }},
      {"where", {{3}, {2, 3}}, [](In in) { return where(condition_at(in[0]), in[0], in[1]); }},
      {"where_of_number", {{2, 2, 1}, {}}, [](In in) { return where(condition_at(in[0]), in[0], in[1]); }},
      {"where_of_nothing", {{0, 1, 2}, {1}}, [](In in) { return where(condition_at(in[0]), in[0], in[1]); }},
      {"dropout", {{5, 7}}, [](In in) { return dropout(dropout(in[0], 0.4f, true), 0.2f, true); }},
      {"attention_dropout",
       {{2, 3, 4}, {2, 5, 4}, {2, 5, 3}},
       [](In in) { return scaled_dot_product_attention(in[0], in[1], in[2], {.dropout = 0.4f}); }},
      {"attention_dropout_causal",
       {{2, 3, 4}, {2, 5, 4}, {2, 5, 3}},
       [](In in) {
         return scaled_dot_product_attention(in[0], in[1], in[2], {.causal = true, .dropout = 0.4f});
       }},
      {"reused", {{3}}, [](In in) { return mul(in[0], add(in[0], in[0])); }},
      {"empty", {{0, 3}}, [](In in) { return softmax(relu(in[0]), 1); }},
      {"conv2d_reused",
       {{3, 3, 3, 3}},
       [](In in) {
         return conv2d(in[0], in[0], {}, {.padding = {1, 1}});
       }},
  };
  for (const MatmulImpl impl : {MatmulImpl::automatic, MatmulImpl::reference}) {
    const std::pair<Shape, Shape> pairs[] = {
        {{3}, {3}},       {{3}, {3, 4}},          {{2, 3}, {3}},
        {{2, 3}, {3, 4}}, {{5, 2, 3}, {3, 4}},    {{2, 3}, {2, 3, 4}},
        {{3}, {2, 3, 4}}, {{2, 3, 4}, {2, 4, 5}}, {{2, 1, 2, 3}, {3, 3, 2}}};
    const auto own = [&](const char* name, std::size_t i) {
      return fmt::format("{}_{}_{}", name, i, int(impl));
    };
    for (const auto& [a, b] : pairs)
      all.push_back({own("matmul", all.size()), {a, b}, [=](In in) { return matmul(in[0], in[1], impl); }});
    all.push_back({own("matmul_reused", 0), {{3, 3}}, [=](In in) { return matmul(in[0], in[0], impl); }});
    for (const Shape& x : {Shape{4}, Shape{3, 4}, Shape{2, 3, 4}}) {
      for (const Activation activation : kActivations) {
        all.push_back({own("linear", all.size()), {x, {5, 4}, {5}}, [=](In in) {
                         return linear(in[0], in[1], in[2], activation, impl);
                       }});
      }
      all.push_back({own("linear_bare", all.size()), {x, {5, 4}}, [=](In in) {
                       return linear(in[0], in[1], {}, Activation::none, impl);
                     }});
    }
  }
  for (const ConvImpl impl : {ConvImpl::automatic, ConvImpl::reference}) {
    const auto conv = [&](const char* name, std::vector<Shape> shapes, Conv2dParams params) {
      params.impl = impl;
      all.push_back({fmt::format("conv2d_{}_{}", name, name_of(impl)), std::move(shapes),
                     [=](In in) { return conv2d(in[0], in[1], in.size() > 2 ? in[2] : Tensor(), params); }});
    };
    conv("strided", {{2, 5, 6, 3}, {4, 3, 2, 3}, {4}}, strided);
    conv("bare", {{1, 4, 5, 2}, {3, 3, 3, 2}}, {.padding = {1, 1}});
    conv("relu", {{1, 4, 5, 2}, {3, 3, 3, 2}, {3}}, {.padding = {1, 1}, .activation = Activation::relu});
    conv("uneven", {{2, 5, 4, 2}, {2, 2, 3, 1}, {2}}, {.stride = {2, 1}, .padding = {1, 0}, .groups = 2});
    conv("dilated", {{1, 6, 6, 1}, {2, 3, 3, 1}, {2}}, {.padding = {1, 2}, .dilation = {2, 2}});
    conv("depthwise", {{1, 4, 4, 4}, {4, 3, 3, 1}}, depthwise);
    conv("grouped", {{1, 3, 3, 4}, {2, 2, 2, 2}}, grouped);
  }
  for (const Activation activation : kActivations) {
    for (const bool training : {true, false}) {
      for (const bool adds : {false, true}) {
        const BatchNormParams params{.activation = activation};
        std::vector<Shape> shapes{{2, 2, 2, 3}, {3}, {3}};
        if (adds) shapes.push_back(shapes[0]);
        all.push_back({fmt::format("batch_norm_{}_{}_{}", static_cast<int>(activation), training, adds),
                       shapes, [=](In in) {
                         // Running statistics of each call's own: the function must not change.
                         const TensorOptions options{DType::f64, in[0].device()};
                         return batch_norm(in[0], in[1], in[2], zeros({3}, options), ones({3}, options),
                                           training, params, adds ? in[3] : Tensor());
                       }});
      }
    }
  }
  for (const Reduction reduction : kReductions) {
    const auto loss = [&](const char* name, std::vector<Shape> shapes, const auto& run) {
      all.push_back({fmt::format("{}_{}", name, static_cast<int>(reduction)), std::move(shapes),
                     [=](In in) { return run(in, reduction); }});
    };
    for (const double smoothing : {0.0, 0.25}) {
      loss(smoothing > 0 ? "cross_entropy_smooth" : "cross_entropy", {{4, 19}},
           [=](In in, Reduction r) { return cross_entropy(in[0], targets_at(in[0]), smoothing, r); });
    }
    loss("nll_loss", {{4, 3}}, [](In in, Reduction r) { return nll_loss(in[0], targets_at(in[0]), r); });
    loss("mse_loss", {{3, 4}, {3, 4}}, [](In in, Reduction r) { return mse_loss(in[0], in[1], r); });
    for (const bool swap : {false, true}) {
      loss(swap ? "triplet_swap" : "triplet", {{2, 3, 4}, {2, 3, 4}, {2, 3, 4}}, [=](In in, Reduction r) {
        return triplet_margin_loss(in[0], in[1], in[2], {.margin = 2, .swap = swap, .reduction = r});
      });
    }
  }
  for (const int axis : {0, 1, 2}) {
    all.push_back({fmt::format("index_select_{}", axis), {{3, 4, 2}}, [=](In in) {
                     return index_select(in[0], axis, indices_at(in[0], {1, 0, 1, 1}, {4}));
                   }});
    all.push_back({fmt::format("gather_{}", axis), {{3, 4, 2}}, [=](In in) {
                     return gather(in[0], axis, indices_at(in[0], {1, 0, 1, 1, 0, 0}, {3, 1, 2}));
                   }});
  }
  const Shape shapes[] = {{5}, {3, 4}, {4, 3, 2}, {2, 3, 1, 2}, {0, 3}};
  for (const Shape& shape : shapes) {
    for (int axis = 0; axis < shape.rank(); ++axis) {
      using Along = Tensor (*)(const Tensor& x, int at);
      const auto along = [&](const char* name, Along run, Along other = nullptr) {
        all.push_back({fmt::format("{}_{}_of_{}_{}", name, axis, shape.rank(), shape[0]),
                       {shape},
                       [=](In in) { return run(in[0], axis); }});
        if (other) all.back().same_as = [=](In in) { return other(in[0], axis); };
      };
      along("softmax", [](const Tensor& x, int at) { return square(softmax(x, at)); });
      along(
          "log_softmax", [](const Tensor& x, int at) { return log_softmax(x, at); },
          [](const Tensor& x, int at) { return log(softmax(x, at)); });
      along("sum", [](const Tensor& x, int at) { return square(sum(x, std::array{at})); });
      along("mean", [](const Tensor& x, int at) { return mean(x, std::array{at}, true); });
      along(
          "var", [](const Tensor& x, int at) { return var(x, std::array{at}, 0); },
          [](const Tensor& x, int at) {
            return mean(square(x - mean(x, std::array{at}, true)), std::array{at});
          });
      if (shape[axis] == 0) continue;
      along(
          "max", [](const Tensor& x, int at) { return max(x, at, at == 1); },
          [](const Tensor& x, int at) {
            const Tensor largest = topk(x, 1, at).values;
            return at == 1 ? largest : squeeze(largest, at);
          });
      along("topk", [](const Tensor& x, int at) { return topk(x, 1, at, at != 1).values; });
      if (shape.rank() == 2)
        all.push_back({fmt::format("cosine_similarity_{}_{}", axis, shape[0]), {shape, shape}, [=](In in) {
                         return cosine_similarity(in[0], in[1], axis);
                       }});
    }
  }
  return all;
}

}  // namespace athanor::test
