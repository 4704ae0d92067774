#pragma once

#include <array>
#include <memory>
#include <vector>

#include "optim/adam.h"
#include "optim/optimizer.h"
#include "optim/sgd.h"
#include "tensor/stream.h"

namespace athanor {

/// The factor of the learning rate for a [rows, columns] matrix.
enum class MuonScale : std::uint8_t {
  none,      ///< 1
  original,  ///< sqrt(max(1, rows / columns)): Jordan 2024
  rms,       ///< 0.2 sqrt(max(rows, columns)): matches AdamW's update size and rates. Liu et al. 2025
};

struct MuonOptions {
  float momentum = 0.95f;  ///< mu
  bool nesterov = true;
  float weight_decay = 0;  ///< lambda; decoupled
  MuonScale scale = MuonScale::original;
  std::array<float, 3> coefficients = {3.4445f, -4.7750f, 2.0315f};  ///< a, b, c
  int iterations = 5;
  float eps = 1e-7f;
  bool normalize_weights = false;  ///< first scales w to the norm sqrt(rows) in every step
  DType dtype = DType::f32;        ///< of the iteration; bf16 costs about 1% of the update's accuracy
  Decay decay = Decay::matrices;   ///< what weight_decay applies to; PyTorch: all

  bool operator==(const MuonOptions&) const = default;
};

/// Momentum with updates orthogonalised by a Newton-Schulz iteration, for matrices. A convolution's weight
/// [K, R, S, C] counts as a matrix [K, R S C]. The formulas of torch.optim.Muon:
///
///     b += (1 - mu)(g - b);   u = nesterov ? g + mu (b - g) : b
///     X  = u / max(|u|, eps);   iterations times:  A = X X^T;  X = a X + (b A + c A^2) X
///     w -= lr lambda w + lr scale X
///
/// By default lambda is 0 for parameters without Parameter::decay (MuonOptions::decay); `rest` has its own
/// options. An iteration on a matrix costs 4 n^2 m + 2 n^3 FLOPs, n the smaller and m the larger side. All
/// else (biases, norms, tokens, and what the selector omits, often the first and last layer) goes to `rest`,
/// another optimizer. State: one f32 per parameter.
///
/// Matrices of one shape, dtype and set of options form batches of up to batch_bytes(), at least one matrix
/// each; a batch is one launch. On a GPU, batches of different shapes run on up to kMaxLanes streams at a
/// time, beside the update of the rest: their products are too small to fill it. Workspace of a stream is at
/// most four times batch_bytes(), or of the largest matrix if that is larger. A matrix affects others of its
/// batch only as kernels::matmul does: not at all on the CPU, by rounding on a GPU. Like the product, results
/// depend on the number of threads and the CPU's instructions: with Ddp (dist/ddp.h), ranks must be alike in
/// both.
///
/// A sharded arena must keep whole parameters (ArenaOptions::whole_parameters). Each rank orthogonalises the
/// matrices it keeps, so ranks share the work.
///
/// Source: Jordan et al. 2024, "Muon: an optimizer for hidden layers in neural networks"; Liu et al. 2025,
/// arXiv:2502.16982 (scale); Bernstein and Newhouse 2024, arXiv:2409.20325 (the iteration).
class Muon final : public Optimizer {
 public:
  using Group = GroupOf<MuonOptions>;
  static constexpr bool kWholeParameters = true;
  static constexpr std::size_t kMaxLanes = 4;

  /// Size limit of a batch. On a GPU larger batches save launches; on a CPU they must fit in cache.
  static std::int64_t batch_bytes(Device device) {
    return device.is_cpu() ? std::int64_t{1} << 20 : std::int64_t{32} << 20;
  }

  /// `groups` use learning rates from `first_slot` on; all their parameters must have rank 2 or more. `rest`
  /// must use the same arena with other slots, and select exactly the remaining parameters; it may be null if
  /// there are none. Throws ArgumentError otherwise, and on options out of range.
  Muon(ParameterArena& arena, const std::vector<Group>& groups, int first_slot,
       std::unique_ptr<Optimizer> rest);
  /// Muon for selectors::matrices(), with StepState::learning_rate[0]; AdamW for the rest, with
  /// learning_rate[1]. set_learning_rates() makes that rate rest_lr_scale times as large. Throws
  /// ArgumentError if either set is empty.
  Muon(ParameterArena& arena, const MuonOptions& options, const AdamWOptions& rest, float rest_lr_scale);
  /// The same with SGD for the rest.
  Muon(ParameterArena& arena, const MuonOptions& options, const SgdOptions& rest, float rest_lr_scale);

  ~Muon() override;

  void step(StepBuffer& step) override;
  bool fuses_averages() const override { return !rest() || rest()->fuses_averages(); }

 private:
  struct MatrixGroup;
  struct Lane;

  void check_selection() const;
  std::vector<MatrixGroup> sort_by_shape();
  void make_lanes(std::vector<MatrixGroup> groups);
  void step_lane(const Lane& lane);
  void step_batch(const Lane& lane, const MatrixGroup& group, int first, std::int64_t count);

  std::vector<MuonOptions> options_;  // by learning-rate slot
  Tensor momentum_;
  std::vector<int> elsewhere_;  // members that other ranks of a sharded arena update
  std::vector<Lane> lanes_;
  Event ready_;           // what lanes wait for
  bool stepped_ = false;  // products have been measured, with nothing beside them
};

}  // namespace athanor
