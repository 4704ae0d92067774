// train_ranks [RANKS] [ddp|zero1]: trains on the digits, by ranks that are threads of this program.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "dist.h"

using namespace engine;

namespace {

constexpr std::int64_t kBatch = 60, kEpochs = 10;  // 60 samples divide by 1 to 6 ranks

struct Report {
  unsigned long long hash = 0;  // of the bits of all parameters
  long long state = 0, bytes = 0, steps = 0;
};

unsigned long long hash_of(const Parameters& parameters) {
  unsigned long long hash = 0;
  for (const auto& [name, parameter] : parameters) {
    for (const float value : parameter.value().values()) {
      std::uint32_t bits = 0;
      std::memcpy(&bits, &value, sizeof bits);
      hash = (hash ^ bits) * 0x100000001b3ull;
    }
  }
  return hash;
}

Report train(Rank& rank, Strategy strategy, const Dataset& train_set, const Dataset& test_set) {
  Sequential network({std::make_shared<Flatten>(), std::make_shared<Linear>(64, 128, 1),
                      std::make_shared<ReLU>(), std::make_shared<Linear>(128, 10, 2)});
  const auto adamw = [](Parameters parameters) {
    return std::make_unique<AdamW>(std::move(parameters), AdamW::Options{});
  };
  DistributedOptimizer optimizer(rank, network, adamw, {strategy, 4096});
  const std::int64_t batches = train_set.size() / kBatch, part = kBatch / rank.world_size();
  Report report;
  for (std::int64_t epoch = 0; epoch < kEpochs; ++epoch) {
    const auto order =
        epoch_order(train_set.size(), 1, epoch);  // the same on all ranks, which take different parts of it
    for (std::int64_t i = 0; i < batches; ++i) {
      const Dataset batch = batch_of(train_set, order, i * kBatch + rank.rank() * part, part);
      optimizer.backward(cross_entropy(network.forward(Variable(batch.images)), batch.labels));
      optimizer.clip_grad_norm(1.0f);
      optimizer.step(cosine_rate(0.01f, report.steps++, 20, kEpochs * batches));
    }
    if (rank.rank() == 0)
      std::printf("epoch %2d  accuracy %.2f %%\n", static_cast<int>(epoch),
                  100 * accuracy(network, test_set));
  }
  report.hash = hash_of(optimizer.parameters());
  report.bytes = rank.sent_bytes();
  for (const auto& [name, tensor] : optimizer.state()) report.state += tensor.numel();
  return report;
}

}  // namespace

int main(int argc, char** argv) {
  const int world = argc > 1 ? std::atoi(argv[1]) : 4;
  const Strategy strategy = argc > 2 && std::string(argv[2]) == "zero1" ? Strategy::zero1 : Strategy::ddp;
  if (world < 1 || kBatch % world != 0) {
    std::fprintf(stderr, "train_ranks: the number of ranks must divide %d\n", static_cast<int>(kBatch));
    return 2;
  }
  try {
    const Dataset train_set = read_digits("digits.csv", true), test_set = read_digits("digits.csv", false);
    std::vector<Report> reports(static_cast<std::size_t>(world));
    run_ranks(world, [&](Rank& rank) {
      reports[static_cast<std::size_t>(rank.rank())] = train(rank, strategy, train_set, test_set);
    });
    for (const Report& report : reports)
      std::printf("rank %d  parameters %016llx  optimizer state %lld numbers  sent %lld bytes a step\n",
                  static_cast<int>(&report - reports.data()), report.hash, report.state,
                  report.bytes / report.steps);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "train_ranks: %s\n", error.what());
    return 1;
  }
}
