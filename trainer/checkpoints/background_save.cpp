#include "trainer/checkpoints/background_save.h"

#include <cstring>
#include <utility>

namespace athanor {
namespace {

/// A host tensor like the entry's: reuses the previous copy's tensor of this name if it fits.
Tensor place_for(const StateDict::Entry& entry, const StateDict& before) {
  const auto* const tensor = std::get_if<Tensor>(&entry.value);
  const auto* const part = std::get_if<ShardedTensor>(&entry.value);
  const Shape& shape = tensor ? tensor->shape() : part->shape;
  const DType dtype = tensor ? tensor->dtype() : part->dtype;
  const StateDict::Value* const old = before.find(entry.name);
  if (const auto* kept = old ? std::get_if<Tensor>(old) : nullptr;
      kept && kept->shape() == shape && kept->dtype() == dtype)
    return *kept;
  return Tensor::empty(shape, {dtype});
}

StateDict copied(const StateDict& state, const dist::ReadTensor& read, const StateDict& before) {
  StateDict copy;
  for (const StateDict::Entry& entry : state) {
    if (!std::holds_alternative<Tensor>(entry.value) && !std::holds_alternative<ShardedTensor>(entry.value)) {
      copy.set(entry.name, entry.value);
      continue;
    }
    const Tensor to = place_for(entry, before);
    std::byte* at = to.raw_data();
    read(entry, [&](std::span<const std::byte> bytes) {
      std::memcpy(at, bytes.data(), bytes.size());
      at += bytes.size();
    });
    copy.set(entry.name, to);
  }
  return copy;
}

}  // namespace

BackgroundSave::~BackgroundSave() {
  join();
}

void BackgroundSave::wait() {
  join();
  if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
}

void BackgroundSave::start(const StateDict& state, const dist::ReadTensor& read,
                           std::function<void(const StateDict&)> write) {
  wait();
  copy_ = copied(state, read, copy_);
  thread_ = std::thread([this, write = std::move(write)] {
    try {
      write(copy_);
    } catch (...) {
      failure_ = std::current_exception();
    }
  });
}

}  // namespace athanor
