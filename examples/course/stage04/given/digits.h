#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "optim.h"

namespace engine {

/// A network for 8 x 8 grey images of ten digits: two convolutions, each halved by a pool, and a linear
/// layer. 6,186 parameters.
inline std::shared_ptr<Sequential> digits_network(std::uint64_t seed) {
  const Conv2d::Options same{1, 1};  // stride, padding: as many pixels as before
  return std::make_shared<Sequential>(std::vector<std::shared_ptr<Module>>{
      std::make_shared<Conv2d>(1, 16, 3, same, 4 * seed), std::make_shared<BatchNorm2d>(16),
      std::make_shared<ReLU>(),
      std::make_shared<MaxPool2d>(2),  // [n, 16, 4, 4]
      std::make_shared<Conv2d>(16, 32, 3, same, 4 * seed + 1), std::make_shared<BatchNorm2d>(32),
      std::make_shared<ReLU>(),
      std::make_shared<MaxPool2d>(2),  // [n, 32, 2, 2]
      std::make_shared<Flatten>(), std::make_shared<Linear>(128, 10, 4 * seed + 2)});
}

/// All 1,797 digits, shuffled once and split: 1,437 for training, and 360 others.
inline std::pair<Dataset, Dataset> mixed_digits(const std::string& path) {
  const Dataset first = read_digits(path, true), last = read_digits(path, false);
  Dataset all{Tensor({first.size() + last.size(), 1, 8, 8}), first.labels};
  copy(first.images, all.images.narrow(0, 0, first.size()));
  copy(last.images, all.images.narrow(0, first.size(), last.size()));
  all.labels.insert(all.labels.end(), last.labels.begin(), last.labels.end());
  const auto order = epoch_order(all.size(), 0, 0);
  return {batch_of(all, order, 0, first.size()), batch_of(all, order, first.size(), last.size())};
}

}  // namespace engine
