#include "dist.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <future>
#include <stdexcept>
#include <string>

namespace engine {
namespace {

std::span<float> span_of(const Tensor& x) {
  return {x.data(), static_cast<std::size_t>(x.numel())};
}

// Where a number of any size is on a ring of P places.
int around(int index, int world_size) {
  return (index % world_size + world_size) % world_size;
}

std::span<float> piece(std::span<float> values, const Rank& rank, int index) {
  const Piece range =
      piece_of(static_cast<std::int64_t>(values.size()), rank.world_size(), around(index, rank.world_size()));
  return values.subspan(static_cast<std::size_t>(range.begin), static_cast<std::size_t>(range.size()));
}

void send_next(Rank& rank, std::span<const float> values) {
  rank.send(around(rank.rank() + 1, rank.world_size()), values);
}

// A message that has another size than it must have belongs to another collective.
std::vector<float> receive_before(Rank& rank, std::size_t size) {
  const int before = around(rank.rank() - 1, rank.world_size());
  std::vector<float> values = rank.receive(before);
  if (values.size() != size)
    throw std::logic_error("collective: all ranks must call the same ones in the same order, but rank " +
                           std::to_string(before) + " sent " + std::to_string(values.size()) +
                           " values where rank " + std::to_string(rank.rank()) + " expects " +
                           std::to_string(size));
  return values;
}

}  // namespace

Piece piece_of(std::int64_t n, int world_size, int index) {
  return {n * index / world_size, n * (index + 1) / world_size};
}

void reduce_scatter(Rank& rank, std::span<float> values) {
  for (int step = 0; step < rank.world_size() - 1; ++step) {
    send_next(rank, piece(values, rank, rank.rank() - 1 - step));
    const std::span<float> sum = piece(values, rank, rank.rank() - 2 - step);
    const std::vector<float> arrived = receive_before(rank, sum.size());
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += arrived[i];
  }
}

void all_gather(Rank& rank, std::span<float> values) {
  for (int step = 0; step < rank.world_size() - 1; ++step) {
    send_next(rank, piece(values, rank, rank.rank() - step));
    const std::span<float> place = piece(values, rank, rank.rank() - 1 - step);
    std::ranges::copy(receive_before(rank, place.size()), place.begin());
  }
}

void all_reduce(Rank& rank, std::span<float> values) {
  reduce_scatter(rank, values);
  all_gather(rank, values);
}

void broadcast(Rank& rank, std::span<float> values) {
  if (rank.rank() > 0) std::ranges::copy(receive_before(rank, values.size()), values.begin());
  if (rank.rank() + 1 < rank.world_size()) send_next(rank, values);
}

DistributedOptimizer::DistributedOptimizer(Rank& rank, const Module& network, const Make& make,
                                           Options options)
    : Optimizer(network.parameters()), rank_(rank), options_(options), places_(parameters_.size()) {
  const auto from_rank_zero = [&](const Tensor& x) {
    const Tensor values = x.clone();
    broadcast(rank_, span_of(values));
    copy(values, x);
  };
  for (const auto& [name, parameter] : parameters_) from_rank_zero(parameter.value());
  for (const auto& [name, buffer] : network.buffers()) from_rank_zero(buffer);

  std::vector<std::int64_t> sizes;
  for (std::size_t i = parameters_.size(); i-- > 0;) {
    if (sizes.empty() || sizes.back() >= options_.bucket_numel) sizes.push_back(0);
    places_[i] = {sizes.size() - 1, sizes.back()};
    sizes.back() += parameters_[i].second.value().numel();
  }
  for (const std::int64_t size : sizes) buckets_.emplace_back(Shape{size});

  if (options_.strategy == Strategy::zero1) {
    for (std::size_t i = 0; i < parameters_.size(); ++i) copy(parameters_[i].second.value(), part(i));
    for (std::size_t b = 0; b < buckets_.size(); ++b)
      pieces_.emplace_back("bucket" + std::to_string(b), Variable(own(b).clone(), true));
  }
  optimizer_ = make(options_.strategy == Strategy::ddp ? parameters_ : pieces_);
}

Tensor DistributedOptimizer::part(std::size_t i) const {
  const Tensor& value = parameters_[i].second.value();
  return buckets_[places_[i].bucket].narrow(0, places_[i].begin, value.numel()).reshape(value.shape());
}

Tensor DistributedOptimizer::own(std::size_t bucket) const {
  const Piece range = piece_of(buckets_[bucket].numel(), rank_.world_size(), rank_.rank());
  return buckets_[bucket].narrow(0, range.begin, range.size());
}

// Copies, for an optimizer may keep a gradient, and the next pass overwrites the buckets.
void DistributedOptimizer::set_grads() const {
  clear_grads();
  if (options_.strategy == Strategy::ddp) {
    for (std::size_t i = 0; i < parameters_.size(); ++i) parameters_[i].second.grad() = part(i).clone();
  } else {
    for (std::size_t b = 0; b < buckets_.size(); ++b) pieces_[b].second.grad() = own(b).clone();
  }
}

void DistributedOptimizer::backward(const Variable& loss, float share) {
  clear_grads();
  std::vector<int> missing(buckets_.size());  // gradients, of each bucket
  for (const Place& place : places_) ++missing[place.bucket];
  for (const Tensor& bucket : buckets_) std::ranges::fill(span_of(bucket), 0.0f);

  std::atomic<std::size_t> launched = 0;  // the buckets before this number may travel
  std::atomic<bool> stopped = false;
  const auto launch_until = [&](std::size_t number) {
    launched = number;
    launched.notify_one();
  };
  std::future<void> communication = std::async(std::launch::async, [&] {
    for (std::size_t b = 0; b < buckets_.size(); ++b) {
      launched.wait(b);
      if (stopped) return;
      (options_.strategy == Strategy::ddp ? all_reduce : reduce_scatter)(rank_, span_of(buckets_[b]));
    }
  });
  try {
    engine::backward(loss, share, [&](const Variable& leaf) {
      const auto found =
          std::ranges::find_if(parameters_, [&](const auto& entry) { return entry.second.same_as(leaf); });
      if (found == parameters_.end()) return;
      const auto i = static_cast<std::size_t>(found - parameters_.begin());
      copy(leaf.grad(), part(i));
      --missing[places_[i].bucket];
      std::size_t next = launched;
      while (next < missing.size() && missing[next] == 0) ++next;
      launch_until(next);
    });
  } catch (...) {  // the future's destructor waits for the thread
    stopped = true;
    launch_until(buckets_.size());
    throw;
  }
  launch_until(buckets_.size());
  communication.get();
  set_grads();
}

float DistributedOptimizer::clip_grad_norm(float most) {
  double own_sum = 0;
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    const Tensor piece = own(b);
    for (const float g : span_of(piece)) own_sum += double{g} * g;
  }
  std::vector<float> sums(static_cast<std::size_t>(rank_.world_size()));
  sums[static_cast<std::size_t>(rank_.rank())] = static_cast<float>(own_sum);
  all_gather(rank_, sums);
  double sum = 0;
  for (const float squares : sums) sum += squares;
  const auto norm = static_cast<float>(std::sqrt(sum));
  if (std::isfinite(norm) && norm > most) {
    for (const Tensor& bucket : buckets_)
      for (float& g : span_of(bucket)) g *= most / norm;
    set_grads();
  }
  return norm;
}

void DistributedOptimizer::step(float lr) {
  optimizer_->step(lr);
  if (options_.strategy == Strategy::ddp) return;
  for (std::size_t b = 0; b < buckets_.size(); ++b) {  // the gradients in the buckets are no longer needed
    copy(pieces_[b].second.value(), own(b));
    all_gather(rank_, span_of(buckets_[b]));
  }
  for (std::size_t i = 0; i < parameters_.size(); ++i) copy(part(i), parameters_[i].second.value());
}

}  // namespace engine
