#pragma once

#include <cstddef>
#include <memory>

#include "nn/models/model.h"

namespace athanor::nn {

/// How make_model() makes a model.
struct ModelRecipe {
  const char* name;
  ModelOptions defaults;
  std::int64_t smallest_image;
  std::unique_ptr<Module> (*make)(const ModelOptions&);
};

inline constexpr ModelOptions kImageNet{1000, 3, 224};

template <class M> std::unique_ptr<Module> make(const ModelOptions& options) {
  return std::make_unique<M>(options);
}

struct ModelTable {
  const ModelRecipe* recipes;
  std::size_t size;
};

}  // namespace athanor::nn

/// The models of the archive athanor_ops. A program that is linked without it (train_digits) has none: then
/// the address is null.
extern "C" [[gnu::weak]] const athanor::nn::ModelTable athanor_ops_models;
