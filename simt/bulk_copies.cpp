#include <algorithm>
#include <cstring>
#include <memory>

#include <fmt/format.h>

#include "simt/asynchronous.h"
#include "simt/bulk_copy.h"
#include "simt/operands.h"
#include "simt/tensor_tiles.h"

// cp.async.bulk, of bytes and of tiles of tensors, and what the asynchronous proxy sees of shared memory.

namespace simt {
namespace async {
namespace {

using Pieces = std::vector<Piece>;

struct Load {
  Pieces pieces;
  unsigned bytes;  // the barrier counts; of a tile, those outside the tensor too
  CountedCopy counted;
};
struct Store {
  Pieces pieces;
  std::vector<char> read;  // what was in shared memory, where it has been read and not yet written
  bool is_read = false, settled = false;
  const void* pc;
  Site site;
};

struct Bulk {
  std::vector<Load> loads;
  std::vector<Groups<Store>> stores;
  std::unique_ptr<char[]> proxy;
  std::size_t proxy_bytes = 0;
};
Bulk& bulk() {
  static Bulk& result = *new Bulk;
  return result;
}

void copy_to_shared(char* to, const char* from, unsigned bytes) {
  char* const copy = proxy_copy(to);
  for (char* const target : {to, copy}) {
    if (!target) continue;
    from ? std::memcpy(target, from, bytes) : std::memset(target, 0, bytes);
  }
}

void perform(const Load& load) {
  for (const Piece& piece : load.pieces) copy_to_shared(piece.to, piece.from, piece.bytes);
}

void read(Store& store) {
  if (store.is_read) return;
  store.is_read = true;
  for (const Piece& piece : store.pieces) {
    const char* const from = seen_by_proxy(piece.from);
    store.read.insert(store.read.end(), from, from + piece.bytes);
  }
}

void write(Store& store) {
  read(store);
  const char* from = store.read.data();
  for (const Piece& piece : store.pieces) {
    std::memcpy(piece.to, from, piece.bytes);
    from += piece.bytes;
  }
  store.pieces.clear();
}

}  // namespace

void begin_block_bulk(unsigned threads) {
  bulk().loads.clear();
  bulk().stores.assign(threads, {});
  bulk().proxy.reset();
}

bool run_one() {
  std::vector<Load>& loads = bulk().loads;
  if (loads.empty()) return false;
  const Order& order = options().threads;
  static Random random(1);
  const std::size_t at = order.kind == Order::Kind::forward   ? 0
                         : order.kind == Order::Kind::reverse ? loads.size() - 1
                                                              : random.below(loads.size());
  const Load load = std::move(loads[at]);
  loads.erase(loads.begin() + static_cast<std::ptrdiff_t>(at));
  perform(load);
  bytes_came(load.counted, load.bytes);
  return true;
}

// What is left of shared memory's readers when the block ends reads what is not there any more.
std::string end_block_bulk() {
  for (Groups<Store>& stores : bulk().stores) {
    stores.commit();
    for (const auto& group : stores.closed) {
      for (const Store& store : group) {
        if (!store.settled) {
          return fmt::format(
              "a copy from shared memory, started at {}, may still read it after the block has ended: no "
              "cp.async.bulk.wait_group waited for the copy",
              place(store.site));
        }
      }
    }
    stores.finish(0, [](Store& store) { write(store); });
  }
  return {};
}

char* proxy_copy(void* shared) {
  if (!executor().is_shared(shared)) return nullptr;
  Bulk& now = bulk();
  if (!now.proxy) {
    used() = true;
    now.proxy_bytes = executor().shared_bytes();
    now.proxy = std::make_unique<char[]>(now.proxy_bytes);
    std::memset(now.proxy.get(), 0xff, now.proxy_bytes);
  }
  return now.proxy.get() + (static_cast<char*>(shared) - static_cast<char*>(executor().shared()));
}

const char* seen_by_proxy(const void* shared) {
  const char* const copy = proxy_copy(const_cast<void*>(shared));
  return copy ? copy : static_cast<const char*>(shared);
}

namespace {

void start_load(const char* instruction, Pieces pieces, unsigned bytes, MemoryBarrier* barrier,
                const Site& site, const void* pc) {
  const unsigned thread = executor().current_thread();
  Load load{std::move(pieces), bytes, count_copy(instruction, thread, barrier, site)};
  used() = true;
  const race::Asynchronous how{.by_proxy = true, .agent = load.counted.agent, .epoch = load.counted.epoch};
  for (const Piece& piece : load.pieces) {
    probe(piece.to, piece.bytes);
    if (piece.from) probe(piece.from, piece.bytes);
    race::access_by(thread, piece.to, piece.bytes, Access::write, pc, how);
    if (piece.from) race::access_by(thread, piece.from, piece.bytes, Access::read, pc, how);
  }
  if (!late()) {
    perform(load);
    bytes_came(load.counted, load.bytes);
    return;
  }
  for (const Piece& piece : load.pieces) std::memset(piece.to, 0xff, piece.bytes);
  bulk().loads.push_back(std::move(load));
}

void start_store(Pieces pieces, const Site& site, const void* pc) {
  const unsigned thread = executor().current_thread();
  used() = true;
  const race::Asynchronous how{.by_proxy = true, .under_way = true};
  for (const Piece& piece : pieces) {
    probe(piece.to, piece.bytes);
    probe(piece.from, piece.bytes);
    race::access_by(thread, piece.from, piece.bytes, Access::read, pc, how);
    race::access_by(thread, piece.to, piece.bytes, Access::write, pc, how);
  }
  Store store{std::move(pieces), {}, false, false, pc, site};
  if (!late()) read(store);
  if (!late()) {
    const Pieces kept = store.pieces;
    write(store);
    store.pieces = kept;
  }
  bulk().stores[thread].open.push_back(std::move(store));
}

void check_bytes(const char* instruction, unsigned bytes, const Site& site) {
  if (bytes % 16 != 0 || bytes == 0)
    refuse(instruction, executor().current_thread(),
           fmt::format("copies {} bytes, which is not a multiple of 16", bytes), site);
}

/// The pieces of a tile; `to_shared`: from the tensor. Fails where the tile cannot lie there.
Pieces pieces_of(const char* instruction, const TensorMap& map, const int* at, int rank, char* shared,
                 bool to_shared, const Site& site) {
  const unsigned thread = executor().current_thread();
  const TensorLayout* const layout = layout_of(map);
  if (!layout) refuse(instruction, thread, "got a pointer to something other than a tensor map", site);
  if (layout->rank != rank) {
    refuse(instruction, thread,
           fmt::format("gives {} coordinates of a tensor of {} axes", rank, layout->rank), site);
  }
  const std::size_t alignment =
      layout->swizzle == Swizzle::none ? 128 : static_cast<std::size_t>(8 * bytes_of(layout->swizzle));
  check_address(instruction, thread, shared, alignment, Where::shared, site);
  return tile_pieces(*layout, at, shared, to_shared);
}

}  // namespace
}  // namespace async

namespace emulated {

void bulk_load(void* to, const void* from, unsigned bytes, MemoryBarrier* barrier, const Site& site) {
  constexpr auto kName = "cp.async.bulk";
  const unsigned thread = executor().current_thread();
  async::check_bytes(kName, bytes, site);
  check_address(kName, thread, to, 16, Where::shared, site);
  check_address(kName, thread, from, 16, Where::global, site);
  async::start_load(kName, {{static_cast<char*>(to), static_cast<const char*>(from), bytes}}, bytes, barrier,
                    site, __builtin_return_address(0));
}

void bulk_store(void* to, const void* from, unsigned bytes, const Site& site) {
  constexpr auto kName = "cp.async.bulk";
  const unsigned thread = executor().current_thread();
  async::check_bytes(kName, bytes, site);
  check_address(kName, thread, from, 16, Where::shared, site);
  check_address(kName, thread, to, 16, Where::global, site);
  async::start_store({{static_cast<char*>(to), static_cast<const char*>(from), bytes}}, site,
                     __builtin_return_address(0));
}

void tensor_load(void* to, const TensorMap& map, const int* at, int rank, MemoryBarrier* barrier,
                 const Site& site) {
  constexpr auto kName = "cp.async.bulk.tensor";
  async::Pieces pieces = async::pieces_of(kName, map, at, rank, static_cast<char*>(to), true, site);
  async::start_load(kName, std::move(pieces), tile_bytes(*layout_of(map)), barrier, site,
                    __builtin_return_address(0));
}

void tensor_store(const TensorMap& map, const int* at, int rank, const void* from, const Site& site) {
  char* const shared = static_cast<char*>(const_cast<void*>(from));
  async::start_store(async::pieces_of("cp.async.bulk.tensor", map, at, rank, shared, false, site), site,
                     __builtin_return_address(0));
}

void bulk_commit() {
  async::bulk().stores[executor().current_thread()].commit();
}

void bulk_wait(unsigned groups, bool for_reads) {
  const unsigned thread = executor().current_thread();
  async::Groups<async::Store>& stores = async::bulk().stores[thread];
  const auto have_read = [&](async::Store& store) {
    async::read(store);
    store.settled = true;
    for (const async::Piece& piece : store.pieces) race::settle(thread, piece.from, piece.bytes, store.pc);
  };
  if (for_reads) {
    for (std::size_t i = 0; i + groups < stores.closed.size(); ++i)
      for (async::Store& store : stores.closed[i]) have_read(store);
    return;
  }
  stores.finish(groups, [&](async::Store& store) {
    have_read(store);
    for (const async::Piece& piece : store.pieces) race::settle(thread, piece.to, piece.bytes, store.pc);
    if (async::late()) async::write(store);
  });
}

}  // namespace emulated
}  // namespace simt
