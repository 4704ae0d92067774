#include "tensor/cuda/graph_pool.h"

namespace athanor::cuda {

GraphPool::GraphPool(Device device)
    : device_(device), allocator_(device_allocator_of(device)), pool_(std::make_unique<Pool>()) {
  pool_->graph = true;
}

GraphPool::~GraphPool() {
  allocator_.dissolve(*pool_);
}

std::int64_t GraphPool::held_bytes() const {
  return allocator_.held(*pool_);
}

GraphPool::Use::Use(GraphPool& pool) : device_(pool.device_) {
  pool.allocator_.enter(*pool.pool_);
  saved_ = exchange_active_pool(device_, {&pool.allocator_, pool.pool_.get()});
}

GraphPool::Use::~Use() {
  exchange_active_pool(device_, saved_);
}

}  // namespace athanor::cuda
