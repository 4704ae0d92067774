// digits [FILE]: trains on the digits of FILE (digits.csv) for six epochs, and prints what the network knows
// of others.
#include <chrono>
#include <cstdio>

#include "digits.h"
#include "optim.h"

int main(int count, char** arguments) {
  using namespace engine;
  const char* path = count > 1 ? arguments[1] : "digits.csv";
  const auto [training, others] = mixed_digits(path);
  const auto network = digits_network(2);
  SGD optimizer(network->parameters(), {0.9f, 2e-3f});
  FitOptions options;
  options.epochs = 6, options.batch_size = 16, options.lr = 0.1f, options.warmup = 44, options.seed = 2;

  const auto begin = std::chrono::steady_clock::now();
  const auto losses = fit(*network, optimizer, training, options);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  for (std::size_t epoch = 0; epoch < losses.size(); ++epoch)
    std::printf("epoch %zu: loss %.4f\n", epoch + 1, losses[epoch]);
  std::printf("%.1f s; right: %.2f %% of the %lld images it was trained on, %.2f %% of %lld others\n",
              seconds.count(), 100 * accuracy(*network, training), static_cast<long long>(training.size()),
              100 * accuracy(*network, others), static_cast<long long>(others.size()));
}
