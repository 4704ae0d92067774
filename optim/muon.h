#pragma once

#include <algorithm>
#include <array>
#include <memory>
#include <vector>

#include "optim/adam.h"
#include "optim/optimizer.h"
#include "optim/sgd.h"

namespace athanor {

/// What the learning rate of a [rows, columns] matrix is multiplied by.
enum class MuonScale : std::uint8_t {
  none,      ///< 1
  original,  ///< sqrt(max(1, rows / columns)): Jordan 2024
  spectral,  ///< sqrt(rows / columns): Bernstein 2025
  rms,       ///< 0.2 sqrt(max(rows, columns)): updates as large as AdamW's, so its rates fit. Liu et al. 2025
};

struct MuonOptions {
  float momentum = 0.95f;  ///< mu
  bool nesterov = true;
  float weight_decay = 0;  ///< lambda; decoupled
  MuonScale scale = MuonScale::original;
  std::array<float, 3> coefficients = {3.4445f, -4.7750f, 2.0315f};  ///< a, b, c
  int iterations = 5;
  float eps = 1e-7f;
  bool normalize_weights = false;  ///< every step begins by scaling w to the norm sqrt(rows)
  DType dtype = DType::f32;        ///< of the iteration; bf16 costs about 1% of the update's accuracy
  Decay decay = Decay::matrices;   ///< what weight_decay applies to; PyTorch: all

  bool operator==(const MuonOptions&) const = default;
};

/// Momentum whose update is made orthogonal by a Newton-Schulz iteration, for matrices; a convolution's
/// weight [K, R, S, C] is the matrix [K, R S C]. The formulas of torch.optim.Muon:
///
///     b += (1 - mu)(g - b);   u = nesterov ? g + mu (b - g) : b
///     X  = u / max(|u|, eps);   iterations times:  A = X X^T;  X = a X + (b A + c A^2) X
///     w -= lr lambda w + lr scale X
///
/// By default lambda is 0 where Parameter::decay is off (MuonOptions::decay); `rest` has options of its own.
/// An iteration of a matrix with n = min(rows, columns), m the other, costs 4 n^2 m + 2 n^3 FLOPs. Everything
/// else (biases, norms, tokens, and what the selector leaves out, often the first and the last layer) goes to
/// `rest`, an optimizer of its own. State: one f32 per parameter.
///
/// Matrices of one shape, dtype and set of options are worked on together, one launch for all: as many of
/// them as fit into batch_bytes(), or one. Workspace is at most five times that or, where it is larger, the
/// largest matrix. What becomes of a matrix depends on the others of its batch only as far as kernels::matmul
/// does: not at all on the CPU, by rounding on a GPU. Results depend on the number of threads, and on the
/// instructions of the CPU, as the matrix product does: with Ddp (dist/ddp.h), ranks must be alike in both.
///
/// A sharded arena must keep whole parameters (ArenaOptions::whole_parameters): every rank orthogonalises the
/// matrices it keeps, and the work is shared.
///
/// Source: Jordan et al. 2024, "Muon: an optimizer for hidden layers in neural networks"; Liu et al. 2025,
/// arXiv:2502.16982 (scale); Bernstein and Newhouse 2024, arXiv:2409.20325 (the iteration).
class Muon final : public Optimizer {
 public:
  using Group = GroupOf<MuonOptions>;

  /// What the matrices of a batch may take. A GPU has launches to save, a CPU its caches to stay in.
  static std::int64_t batch_bytes(Device device) {
    return device.is_cpu() ? std::int64_t{1} << 20 : std::int64_t{32} << 20;
  }

  /// `groups` take learning rates from `first_slot` on; all their parameters must be of rank 2 or more.
  /// `rest` must work on the same arena with other slots, and select exactly the parameters the groups leave;
  /// it may be null where they leave none. Throws ArgumentError otherwise, and on options out of range.
  Muon(ParameterArena& arena, const std::vector<Group>& groups, int first_slot,
       std::unique_ptr<Optimizer> rest);
  /// Muon for what selectors::matrices() selects, from StepState::learning_rate[0]; AdamW for everything
  /// else, from learning_rate[1], which set_learning_rates() makes rest_lr_scale times as large. Throws
  /// ArgumentError where either is empty.
  Muon(ParameterArena& arena, const MuonOptions& options, const AdamWOptions& rest, float rest_lr_scale);
  /// The same with SGD for everything else.
  Muon(ParameterArena& arena, const MuonOptions& options, const SgdOptions& rest, float rest_lr_scale);

  void step(StepBuffer& step) override;
  void set_learning_rates(StepBuffer& step, const Schedule& schedule) const override;
  std::vector<int> selected() const override;
  StateDict state_dict() const override;
  void load_state_dict(const StateDict& state) override;
  void check_state_dict(const StateDict& state) const override;
  void fuse_averages(std::span<const Tensor> averages, const kernels::AverageRule& rule) override;
  void mark_updated(std::span<char> updated) const override;

 private:
  // Matrices that can be worked on together.
  struct Alike {
    int part = 0;
    std::int64_t rows = 0, columns = 0;
    MuonOptions options;
    std::int64_t most = 1;  // in a batch
    std::vector<int> members;

    std::int64_t side() const { return std::min(rows, columns); }
  };
  struct Workspace {
    Tensor x, next;                // flat, for the largest batch
    Tensor gram, factor, product;  // flat, for its min(rows, columns) squared
  };

  void check_selection() const;
  void sort_by_shape();
  void make_workspace();
  template <class Context>
  void step_batch(Context& context, const Alike& alike, int first, std::int64_t count);
  template <class Context>
  Tensor orthogonalize(Context& context, const Alike& alike, std::int64_t count) const;

  std::vector<MuonOptions> options_;  // by learning-rate slot
  std::unique_ptr<Optimizer> rest_;
  Tensor momentum_;
  std::vector<Alike> alike_;
  std::vector<int> elsewhere_;  // members that other ranks of a sharded arena update
  Workspace f32_, bf16_;        // made where some group iterates in that dtype
};

}  // namespace athanor
