#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "optim.h"
#include "ranks.h"

namespace engine {

/// Elements begin .. end - 1 of a buffer.
struct Piece {
  std::int64_t begin = 0, end = 0;
  std::int64_t size() const { return end - begin; }
};
/// Piece `index` of n elements that are cut into world_size pieces: it begins at n index / world_size,
/// rounded down.
Piece piece_of(std::int64_t n, int world_size, int index);

// Collectives. All ranks call the same ones in the same order, with as many values; any number of them, 0
// included; a rank that receives a message of another size throws. With P ranks, reduce_scatter and
// all_gather take P - 1 steps each: in a step, every rank sends one message to the next rank and receives one
// from the rank before. Numbers below are modulo P.

/// This rank's own piece, which on rank r is number r, becomes its sum over all ranks; the other pieces hold
/// anything afterwards. In step s, from 0 to P - 2, rank r sends piece r - 1 - s, and adds what arrives to
/// piece r - 2 - s. So piece p is summed in the order of ranks p + 1, p + 2, ..., p.
void reduce_scatter(Rank& rank, std::span<float> values);
/// Each rank's own piece, to all. In step s, rank r sends piece r - s, and what arrives is piece r - 1 - s.
void all_gather(Rank& rank, std::span<float> values);
/// The sum over all ranks, to all: reduce_scatter, then all_gather.
void all_reduce(Rank& rank, std::span<float> values);
/// The values of rank 0, to all: each rank passes them on to the next, but the last does not.
void broadcast(Rank& rank, std::span<float> values);

/// DDP: every rank updates all parameters. ZeRO-1: each updates its own piece of every bucket, and has
/// optimizer state for that alone.
enum class Strategy { ddp, zero1 };

/// The optimizer of a network that several ranks train, each with a copy of its own and a part of every
/// batch. Parameters are equal on all ranks after every step, to the bit.
///
/// Gradients travel in buckets, flat tensors with the gradients of several parameters one after another.
/// Parameters fill buckets from the last to the first, as backward passes complete them; one that follows a
/// bucket with bucket_numel elements or more begins the next.
class DistributedOptimizer final : public Optimizer {
 public:
  struct Options {
    Strategy strategy = Strategy::ddp;
    std::int64_t bucket_numel = 1 << 18;
  };
  /// Makes the optimizer that steps: on all parameters, or on this rank's pieces.
  using Make = std::function<std::unique_ptr<Optimizer>(Parameters)>;
  /// Copies rank 0's parameters and buffers to all ranks. The network has each parameter once, under one
  /// name.
  DistributedOptimizer(Rank& rank, const Module& network, const Make& make, Options options);

  /// Clears all gradients, then makes the backward pass with seed `share`; gradients are summed over ranks
  /// meanwhile, on a second thread. All ranks call it. `loss` is a mean over this rank's samples, and share
  /// is their part of the samples of all ranks: the sum is then the mean over the whole batch. Buckets travel
  /// in the order of their numbers, each as soon as its gradients and those of the buckets before it are
  /// complete. A parameter that the pass does not reach contributes zeros. Afterwards every parameter has the
  /// sum as its gradient (ddp); or none has one, and each piece has its own (zero1).
  void backward(const Variable& loss, float share);
  /// With equal parts: share = 1 / world_size.
  void backward(const Variable& loss) { backward(loss, 1.0f / static_cast<float>(rank_.world_size())); }

  /// As engine::clip_grad_norm, on the summed gradients; all ranks call it, and get the same. Each rank sums
  /// the squares of its own pieces, in the order of buckets, in double, and rounds that to float. The sums
  /// are added in double, in the order of ranks. Scales the buckets, then sets the gradients from them again.
  float clip_grad_norm(float most);
  /// All ranks call it. With zero1, the new parameters are gathered: as many bytes as ddp spends on gathering
  /// gradients.
  void step(float lr) override;
  /// The state that this rank keeps.
  std::vector<std::pair<std::string, Tensor>> state() const override { return optimizer_->state(); }

  std::size_t buckets() const { return buckets_.size(); }

 private:
  /// Parameter i's part of its bucket, with the parameter's shape: a view.
  Tensor part(std::size_t i) const;
  /// This rank's own piece of a bucket: a view.
  Tensor own(std::size_t bucket) const;
  /// Gives optimizer_ its gradients, from the buckets.
  void set_grads() const;

  Rank& rank_;
  Options options_;
  std::vector<Tensor> buckets_;
  struct Place {
    std::size_t bucket = 0;
    std::int64_t begin = 0;
  };
  std::vector<Place> places_;  // of each parameter
  Parameters pieces_;          // zero1: "bucket0", "bucket1", ..., with the values of own(0), own(1), ...
  std::unique_ptr<Optimizer> optimizer_;
};

}  // namespace engine
