#pragma once

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "autograd/elementwise.h"
#include "autograd/matmul.h"
#include "autograd/reduce.h"
#include "autograd/shape.h"
#include "autograd/similarity.h"
#include "tests/support/small_training.h"

// A Trainer with losses over the samples of all ranks: what several ranks make of them is what one does.

namespace athanor::test {

/// Two views of each picture, which have to find each other among all.
struct Contrastive : Task {
  enum class Loss { nt_xent, own_rows };
  explicit Contrastive(Loss which) : loss(which) {
    network("", net);
    net.initialize(7);
  }
  bool gathers() const override { return true; }
  Tensor training_step(const Batch& batch, Step& step) override { return loss_of(batch, step); }
  void validation_step(const Batch& batch, Step& step) override { step.log("loss", loss_of(batch, step)); }
  Tensor loss_of(const Batch& batch, Step& step) {
    const Tensor x = flatten(batch["image"]);
    const Tensor a = net(x), b = net(affine(square(x), 0.5, 0.1));
    const Tensor all_b = step.all_gather(b);
    most_rows = std::max(most_rows, all_b.dim(0));
    no_samples |= batch.size() == 0;
    if (loss == Loss::nt_xent) return nt_xent_loss(step.all_gather(a), all_b);
    // As CLIP has it, in one direction: own rows, each of which looks for its other view among those of all.
    return mean(square(matmul(a, transpose(all_b, 0, 1))));
  }

  nn::Linear net{16, 6};
  Loss loss;
  std::int64_t most_rows = 0;  // of all ranks
  bool no_samples = false;     // in a step
};

struct ContrastiveRun {
  std::vector<double> weights;
  double train_loss = 0, val_loss = 0;
  bool no_samples = false;
};

inline ContrastiveRun train_contrastive(Contrastive::Loss loss, TrainerConfig config, std::int64_t samples,
                                        dist::Transport* transport) {
  config.threads = 1;
  config.val_batch_size = 16;  // of 50: two are left for the last
  Contrastive task(loss);
  Trainer trainer(config, transport);
  RecordedRun run;
  trainer.add(std::make_unique<Recorder>(run));
  (void)trainer.fit(task, *synthetic(kSmallSpec, samples, 1), *synthetic(kSmallSpec, 50, 2));
  EXPECT_EQ(task.most_rows, 16);
  return {weights_of(task.networks()), run.epochs.back().train_loss, run.epochs.back().val_loss,
          task.no_samples};
}

/// Gradients are those of one rank on the whole batch: also with two batches a step, and with parts that are
/// not equal. ZeRO-1 is DDP, bit for bit.
inline void check_losses_over_all_ranks(dist::Transport& transport) {
  for (const auto loss : {Contrastive::Loss::nt_xent, Contrastive::Loss::own_rows}) {
    for (const auto& [samples, accumulate] : {std::pair{64, 1}, {64, 2}, {13, 1}}) {
      TrainerConfig config = small_config();
      config.epochs = 2;
      config.accumulate = accumulate;
      const ContrastiveRun one = train_contrastive(loss, config, samples, nullptr);
      std::vector<double> ddp;
      for (const Strategy strategy : {Strategy::ddp, Strategy::zero1}) {
        config.strategy = strategy;
        const ContrastiveRun mine = train_contrastive(loss, config, samples, &transport);
        const std::string where =
            fmt::format("{} samples, accumulate {}, {}", samples, accumulate, name_of(strategy));
        ASSERT_EQ(mine.weights.size(), one.weights.size());
        for (std::size_t i = 0; i < one.weights.size(); ++i)
          ASSERT_NEAR(mine.weights[i], one.weights[i], 1e-5) << where;
        EXPECT_NEAR(mine.train_loss, one.train_loss, 1e-5) << where;
        EXPECT_NEAR(mine.val_loss, one.val_loss, 1e-5) << where;
        EXPECT_EQ(mine.no_samples, transport.rank() >= 2) << "of the last two that are held out";
        if (strategy == Strategy::ddp) ddp = mine.weights;
        EXPECT_EQ(mine.weights, ddp) << where;
      }
    }
  }
}

}  // namespace athanor::test
