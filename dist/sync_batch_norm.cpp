#include "dist/sync_batch_norm.h"

namespace athanor::dist {

SyncBatchNorm::SyncBatchNorm(nn::Module& model, const PassNetwork& network) : network_(network) {
  if (network.alone()) return;
  for (const nn::NamedModule& module : model.modules()) {
    const auto* norm = dynamic_cast<const nn::BatchNorm*>(module.module);
    if (norm) norms_.push_back(const_cast<nn::BatchNorm*>(norm));  // modules() is const, the model is not
  }
  for (nn::BatchNorm* norm : norms_) norm->join(this);
}

void SyncBatchNorm::leave() {
  for (nn::BatchNorm* norm : norms_) norm->join(nullptr);
}

SyncBatchNorm::Exchange& SyncBatchNorm::exchange_of(const Tensor& row) {
  for (Exchange& exchange : exchanges_) {
    if (exchange.rows.dim(1) == row.numel() && exchange.rows.device() == row.device()) return exchange;
  }
  const AllocTag named("comm");
  const std::int64_t ranks = network_.comm().world_size();
  const Tensor flat = Tensor::empty({ranks * row.numel()}, {row.dtype(), row.device()});
  const Tensor rows = flat.view_as_strided({ranks, row.numel()}, {row.numel(), 1}, 0);
  exchanges_.push_back({rows, network_.comm().all_gather_small(flat)});
  return exchanges_.back();
}

Tensor SyncBatchNorm::gather(const Tensor& row) {
  const std::int64_t n = row.numel();
  if (network_.alone()) return row.view_as_strided({1, n}, {n, 1}, 0);
  Exchange& exchange = exchange_of(row);
  exchange.rows.view_as_strided({n}, {1}, network_.comm().rank() * n).copy_bytes_from(row);
  PassNetwork::named("sync_batch_norm", [&] { network_.comm().run(*exchange.gather); });
  return exchange.rows;
}

}  // namespace athanor::dist
