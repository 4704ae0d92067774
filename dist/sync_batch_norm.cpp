#include "dist/sync_batch_norm.h"

#include "dist/collectives/slice.h"
#include "tensor/error.h"

namespace athanor::dist {

SyncBatchNorm::SyncBatchNorm(nn::Module& model, const Communicator& comm) {
  if (comm.world_size() == 1) return;
  if (!comm.transport().duplicates_are_concurrent()) {
    session_ = &comm.session();
    session_->check_free("sync_batch_norm");
    session_->set_concurrent(false);
  }
  network_ = comm.transport().duplicate();
  comm_ = std::make_unique<Communicator>(*network_, comm.options());
  for (const nn::NamedModule& module : model.modules()) {
    const auto* norm = dynamic_cast<const nn::BatchNorm*>(module.module);
    if (norm) norms_.push_back(const_cast<nn::BatchNorm*>(norm));  // modules() is const, the model is not
  }
  for (nn::BatchNorm* norm : norms_) norm->join(this);
}

SyncBatchNorm::~SyncBatchNorm() {
  leave();
  if (session_) session_->set_concurrent(true);
}

void SyncBatchNorm::leave() {
  for (nn::BatchNorm* norm : norms_) norm->join(nullptr);
}

SyncBatchNorm::Exchange& SyncBatchNorm::exchange_of(const Tensor& row) {
  for (Exchange& exchange : exchanges_) {
    if (exchange.rows.dim(1) == row.numel() && exchange.rows.device() == row.device()) return exchange;
  }
  const AllocTag named("comm");
  const std::int64_t ranks = comm_->world_size();
  const Tensor flat = Tensor::empty({ranks * row.numel()}, {row.dtype(), row.device()});
  const Tensor rows = flat.view_as_strided({ranks, row.numel()}, {row.numel(), 1}, 0);
  exchanges_.push_back({rows, comm_->all_gather_small(flat)});
  return exchanges_.back();
}

Tensor SyncBatchNorm::gather(const Tensor& row) {
  if (!comm_) return row.view_as_strided({1, row.numel()}, {row.numel(), 1}, 0);
  Exchange& exchange = exchange_of(row);
  const std::int64_t n = row.numel();
  exchange.rows.view_as_strided({n}, {1}, comm_->rank() * n).copy_bytes_from(row);
  try {
    comm_->run(*exchange.gather);
  } catch (const PeerLostError& error) {
    detail::fail<PeerLostError>("sync_batch_norm: {}", error.what());
  }
  return exchange.rows;
}

}  // namespace athanor::dist
