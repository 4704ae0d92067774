#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "kernels/int8.h"
#include "kernels/int8_weights.h"
#include "nn/quantized/graph.h"

namespace athanor::nn::quantized {

/// Told each value of the graph as it is computed.
using Watch = std::function<void(int value, const Tensor& x)>;

/// A graph, ready to run by any number of threads: the multipliers and integer biases that follow from its
/// scales, weights for the kernels, and the places of its values, which are freed after their last reader.
class Executor {
 public:
  /// Before rounding, results are at most this many steps of their scale, with a residual as many again: so
  /// they fit an i32.
  static constexpr double kMostSteps = 1 << 29;

  /// `graph` must outlive this and not change; all its tensors are on one device. Throws ArgumentError naming
  /// a tensor whose values are out of range.
  explicit Executor(const Graph& graph);

  /// images f32 [N, ...] on the graph's device -> the value of graph.output. No gradients.
  Tensor run(const Tensor& images, const Watch* watch = nullptr) const;

 private:
  /// What an op in 8-bit integers multiplies, beside what the graph says.
  struct Step {
    std::vector<int> inputs, freed;  // slots
    int output = 0;                  // slot
    Quantizer x, other, y;           // of inputs[0], inputs[1] and the output where they are u8
    float scale = 0, other_scale = 0;
    kernels::Rounding rounding;
    std::unique_ptr<kernels::Int8Weights> weights;
    Tensor matrix;  // the weight of a linear layer in f32, [K, C]
  };

  void place_values();
  void prepare(const Op& op, Step& step) const;
  void prepare_product(const Op& op, Step& step) const;
  Tensor compute(const Op& op, const Step& step, const Tensor* inputs, std::int64_t images) const;
  Tensor product_in_f32(const Op& op, const Step& step, const Tensor* inputs) const;
  Tensor in_int8(const Op& op, const Step& step, const Tensor* inputs, std::int64_t images) const;
  const Value& value(int i) const { return graph_.values[static_cast<std::size_t>(i)]; }

  const Graph& graph_;
  std::vector<Step> steps_;  // one for each op
  int slots_ = 0, input_slot_ = 0, output_slot_ = 0;
};

}  // namespace athanor::nn::quantized
