#pragma once

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
};

/// Momentum whose update is made orthogonal by a Newton-Schulz iteration, for matrices; a convolution's
/// weight [K, R, S, C] is the matrix [K, R S C]. The formulas of torch.optim.Muon:
///
///     b += (1 - mu)(g - b);   u = nesterov ? g + mu (b - g) : b
///     X  = u / max(|u|, eps);   iterations times:  A = X X^T;  X = a X + (b A + c A^2) X
///     w -= lr lambda w + lr scale X
///
/// An iteration of a matrix with n = min(rows, columns), m the other, costs 4 n^2 m + 2 n^3 FLOPs. Everything
/// else (biases, norms, and what the selector leaves out, often the first and the last layer) goes to `rest`,
/// an optimizer of its own. State: one f32 per parameter, and workspace for the largest matrix.
/// Results depend on the number of threads as the matrix product does.
/// Source: Jordan et al. 2024, "Muon: an optimizer for hidden layers in neural networks"; Liu et al. 2025,
/// arXiv:2502.16982 (scale); Bernstein and Newhouse 2024, arXiv:2409.20325 (the iteration).
class Muon final : public Optimizer {
 public:
  using Group = GroupOf<MuonOptions>;

  /// `groups` take learning rates from `first_slot` on; all their parameters must be of rank 2 or more.
  /// `rest` must work on the same arena with other slots, and select exactly the parameters the groups leave;
  /// it may be null where they leave none. Throws ArgumentError otherwise, and on options out of range.
  Muon(ParameterArena& arena, const std::vector<Group>& groups, int first_slot,
       std::unique_ptr<Optimizer> rest);
  /// Muon for every matrix, from StepState::learning_rate[0]; AdamW for everything else, from
  /// learning_rate[1], which set_learning_rates() makes rest_lr_scale times as large. Throws ArgumentError
  /// where either is empty.
  Muon(ParameterArena& arena, const MuonOptions& options, const AdamWOptions& rest, float rest_lr_scale);
  /// The same with SGD for everything else.
  Muon(ParameterArena& arena, const MuonOptions& options, const SgdOptions& rest, float rest_lr_scale);

  void step(StepBuffer& step) override;
  void set_learning_rates(StepBuffer& step, const Schedule& schedule) const override;
  std::vector<int> selected() const override;
  StateDict state_dict() const override;
  void load_state_dict(const StateDict& state) override;

  struct MatrixSize {
    std::int64_t rows, columns;
  };

 private:
  struct Workspace {
    Tensor x, next;                // flat, for the largest matrix
    Tensor gram, factor, product;  // flat, for the largest min(rows, columns) squared
  };

  void check_selection() const;
  void make_workspace();
  template <class Context>
  Tensor orthogonalize(Context& context, const MuonOptions& options, const MatrixSize& size,
                       const Workspace& work) const;

  std::vector<MuonOptions> options_;  // by learning-rate slot
  std::unique_ptr<Optimizer> rest_;
  Tensor momentum_;
  Workspace f32_, bf16_;  // made where some group iterates in that dtype
};

}  // namespace athanor
