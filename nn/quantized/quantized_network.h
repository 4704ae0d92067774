#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "kernels/int8.h"
#include "nn/module.h"
#include "nn/quantized/calibration.h"
#include "nn/quantized/graph.h"

namespace athanor::nn {

/// The whole range [min, max] that was seen, with 0: 256 steps. Without a range, a scale of 1.
Quantizer min_max_quantizer(const ObservedValue& value);

struct QuantizeOptions {
  /// How a value is stored. Must give a finite scale > 0 and a zero in [0, 255].
  std::function<Quantizer(const ObservedValue&)> choose = min_max_quantizer;
  /// Products that stay in f32, by name: see Calibration::products().
  std::vector<std::string> keep_f32 = {};
  /// Adds to each product's bias what rounding its weights takes from its mean result over the calibration's
  /// images. Source: Nagel et al. 2019, arXiv:1906.04721, section 4.2.
  bool correct_bias = true;
};

/// A network for inference in 8-bit integers, made from a float network. Like any module, it takes images f32
/// [N, H, W, C] and returns f32 results, so predictions, evaluations and services use it unchanged.
///
/// Batch norms are folded into their convolutions. Convolutions, linear layers, pools, sums and gates of
/// channels run in integers (kernels/int8.h), with ReLU and residual sums inside the convolution; functions
/// of one element are tables of 256 entries. What has no 8-bit op runs in f32, and so do sums whose operands
/// exist in f32 alone. Weights are i8, symmetric, with a scale per output channel; activations u8 with one
/// scale and zero per tensor. Equal files and images give equal bytes on every CPU, up to what runs in f32.
///
/// It has no parameters. Its buffers, under the names of the layers, are all that it needs beside the float
/// network's architecture: of a product `weight` [K, R, S, C / groups] i8, `weight_scale` [K] f32, `bias` [K]
/// f32 and, unless its result is f32, `scale` [] f32 and `zero` [] u8 of the result; of a table `table` [256]
/// u8; of an op in f32 its parameters. A product in f32 has an f32 `weight`.
///
/// forward() may be called by any number of threads, while nothing changes the buffers.
class QuantizedNetwork final : public Module {
 public:
  /// From the state_dict() of another one. `architecture`: the float network, whose values are not used, and
  /// need not be set. `sample`: the shape of one image. Throws ArgumentError naming each entry that is
  /// missing, unknown, of another shape or dtype, or out of range: a scale that is not finite or not > 0, a
  /// weight of -128, sums that may not fit an i32.
  QuantizedNetwork(Module& architecture, const Shape& sample, const StateDict& state);
  ~QuantizedNetwork() override;

  /// x f32 [N, H, W, C] -> f32. No gradients. Throws ArgumentError on another shape or dtype, and if the
  /// buffers were changed to values out of range.
  Tensor forward(const Tensor& x) override;

  const quantized::Graph& graph() const { return graph_; }
  const Shape& sample() const { return sample_; }
  /// The products in 8-bit integers, or those in f32, by name.
  std::vector<std::string> products_in(DType dtype) const;

 private:
  friend std::unique_ptr<QuantizedNetwork> quantize(const Calibration&, const QuantizeOptions&);
  struct State;
  QuantizedNetwork(quantized::Graph graph, const Shape& sample);

  /// Throws ArgumentError if values are out of range.
  void check();

  quantized::Graph graph_;
  Shape sample_;
  std::unique_ptr<State> state_;
};

/// A calibrated network in 8-bit integers, on the CPU. Throws ArgumentError without images, on a product to
/// keep that does not exist, naming the nearest, and on a quantizer out of range.
std::unique_ptr<QuantizedNetwork> quantize(const Calibration& calibration,
                                           const QuantizeOptions& options = {});

/// Whether these are the weights of a QuantizedNetwork: one is i8.
bool is_quantized(const StateDict& state);

}  // namespace athanor::nn
