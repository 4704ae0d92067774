#pragma once

#include <algorithm>
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
  spectral,  ///< sqrt(rows / columns): Bernstein 2025
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
/// most five times batch_bytes(), or of the largest matrix if that is larger. A matrix affects others of its
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

  void step(StepBuffer& step) override;
  void set_learning_rates(StepBuffer& step, const Schedule& schedule) const override;
  std::vector<int> selected() const override;
  StateDict state_dict() const override;
  void load_state_dict(const StateDict& state) override;
  void check_state_dict(const StateDict& state) const override;
  bool fuses_averages() const override { return !rest_ || rest_->fuses_averages(); }
  void fuse_averages(std::span<const Tensor> averages, const kernels::AverageRule& rule) override;
  void mark_updated(std::span<char> updated) const override;

 private:
  // Matrices that can share a batch.
  struct MatrixGroup {
    int part = 0;
    std::int64_t rows = 0, columns = 0;
    MuonOptions options;
    std::int64_t most = 1;  // matrices in a batch
    std::vector<int> members;

    std::int64_t side() const { return std::min(rows, columns); }
    double flops() const;  // of a step
  };
  struct Workspace {
    Tensor x, next;                // flat, for the largest batch
    Tensor gram, factor, product;  // flat, for a batch of min(rows, columns) squared
  };

  // Groups that run one after the other, on a stream of their own.
  struct Lane {
    explicit Lane(Device device) : stream(Stream::create(device)), done(device) {}
    Stream stream;
    Event done;
    std::vector<std::size_t> groups;
    double flops = 0;
    Workspace f32, bf16;  // allocated if a group iterates in that dtype

    const Workspace& workspace(DType dtype) const { return dtype == DType::f32 ? f32 : bf16; }
  };

  void check_selection() const;
  void sort_by_shape();
  void make_lanes();
  Workspace workspace_of(const Lane& lane, DType dtype) const;
  template <class Context> void step_lane(Context& context, const Lane& lane);
  template <class Context>
  void step_batch(Context& context, const Workspace& work, const MatrixGroup& group, int first,
                  std::int64_t count);
  template <class Context>
  Tensor orthogonalize(Context& context, const Workspace& work, const MatrixGroup& group,
                       std::int64_t count) const;

  std::vector<MuonOptions> options_;  // by learning-rate slot
  std::unique_ptr<Optimizer> rest_;
  Tensor momentum_;
  std::vector<MatrixGroup> groups_;
  std::vector<int> elsewhere_;  // members that other ranks of a sharded arena update
  std::vector<Lane> lanes_;
  Event ready_;           // what lanes wait for
  bool stepped_ = false;  // products have been measured, with nothing beside them
};

}  // namespace athanor
