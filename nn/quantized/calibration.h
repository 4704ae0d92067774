#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "nn/module.h"

namespace athanor::nn {

namespace quantized {
struct Graph;
}

/// How often numbers occur: in at most kBins bins of one width, a power of two that doubles as the range
/// grows, so that numbers can be added at any time.
class Histogram {
 public:
  static constexpr std::int64_t kBins = 2048;

  /// Adds finite numbers, of which min and max are known.
  void add(std::span<const float> numbers, float min, float max);
  void add(const Histogram& other);

  /// Bin i counts numbers in [edge(i), edge(i + 1)). The first and the last are not empty; empty if nothing
  /// was added.
  const std::vector<std::int64_t>& counts() const { return counts_; }
  double edge(std::int64_t bin) const { return static_cast<double>(first_ + bin) * width_; }
  double width() const { return width_; }

 private:
  void cover(std::int64_t first, std::int64_t last, double width);

  std::vector<std::int64_t> counts_;
  std::int64_t first_ = 0;  // bin 0 begins at first_ width_
  double width_ = 0;
};

/// What a calibration saw of a value of the network, over all images.
struct ObservedValue {
  std::string name;        ///< of the op that computes it, "input" for the images
  float min = 0, max = 0;  ///< 0 if nothing was seen
  Histogram histogram = {};
  std::vector<double> channel_means = {};  ///< of the last axis
  std::int64_t rows = 0;                   ///< how many values of each channel were seen
};

/// Runs a network in f32 over images, with its batch norms folded, and gathers what quantize() must know.
///
///     nn::Calibration calibration(network, {32, 32, 3});
///     for (const Tensor& images : some) calibration.observe(images);
///     const auto quantized = nn::quantize(calibration);
///
/// Keeps its own copies of the weights, on the CPU.
class Calibration {
 public:
  /// Runs the network twice, in evaluation mode; `sample`: the shape of one image, [H, W, C]. Afterwards
  /// modules are in their previous mode. Throws ArgumentError naming an op that is not known here and its
  /// layer, on weights that are not f32, and on what forward() computes otherwise than by ops of autograd/
  /// (as export_onnx()).
  Calibration(Module& network, const Shape& sample);
  ~Calibration();
  Calibration(const Calibration&) = delete;
  Calibration& operator=(const Calibration&) = delete;

  /// images f32 [N, H, W, C], normalised as the network expects. Returns the network's results, in f32.
  /// Throws ArgumentError on another shape, and naming the op whose result is not finite.
  Tensor observe(const Tensor& images);
  /// The network's results; observes nothing.
  Tensor forward(const Tensor& images) const;
  std::int64_t images() const;

  /// Each value that 8-bit integers may store, in the order of the ops.
  const std::vector<ObservedValue>& values() const;
  /// The names of the products (convolutions, linear layers, lone batch norms), in order.
  std::vector<std::string> products() const;
  /// The ops in f32.
  const quantized::Graph& graph() const;
  const Shape& sample() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace athanor::nn
