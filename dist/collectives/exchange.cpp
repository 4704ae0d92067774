#include "dist/collectives/exchange.h"

#include "dist/collectives/slice.h"
#include "dist/collectives/wait.h"
#include "tensor/pinned.h"

namespace athanor::dist {

Exchange::Exchange(Communicator& comm, std::int64_t row_bytes)
    : comm_(comm), row_bytes_(row_bytes), here_(comm.transport().device()) {
  const AllocTag named("comm");
  const std::int64_t bytes = row_bytes * comm.world_size();
  table_ = host_ = make_flat(bytes, DType::u8, comm.transport().device());
  if (!table_.device().is_cpu()) {
    host_ = empty_pinned({bytes}, DType::u8);
    std::memset(host_.raw_data(), 0, static_cast<std::size_t>(bytes));
  }
  gather_ = comm.all_gather_small(table_);
}

void Exchange::upload(std::int64_t begin) {
  if (table_.device().is_cpu()) return;
  const Range mine{comm_.rank() * row_bytes_ + begin, (comm_.rank() + 1) * row_bytes_};
  slice(table_, mine).copy_bytes_from(slice(host_, mine));
}

void Exchange::run(const Site& site) {
  comm_.run(*gather_);
  download(site);
}

void Exchange::download(const Site& site) {
  count_host_sync("exchange between ranks", site);
  if (table_.device().is_cpu()) return;
  host_.copy_bytes_from(table_);
  here_.record(current_stream(table_.device()));
  // With a deadline, as every wait: the stream may be blocked by another's.
  StallTimeout patience(comm_.options().timeout);
  while (!here_.done()) {
    if (!patience.wait(0))
      detail::fail<BackendError>("exchange: {} must copy {} bytes to the host within {} s, but has not",
                                 table_.device().str(), host_.numel(),
                                 static_cast<double>(comm_.options().timeout.count()) / 1000);
  }
}

}  // namespace athanor::dist
