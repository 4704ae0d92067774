#include <cstring>
#include <memory>

#include <fmt/format.h>

#include "simt/bulk_copy.h"
#include "simt/emulator/asynchronous.h"
#include "simt/emulator/operands.h"
#include "simt/emulator/tensor_tiles.h"

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

struct Bulk {
  std::vector<Load> loads;  // that have not come
  std::unique_ptr<char[]> proxy;
};
Bulk& bulk() {
  static Bulk& result = *new Bulk;
  return result;
}

void perform(const Load& load) {
  for (const Piece& piece : load.pieces) {
    for (char* const target : {piece.to, proxy_copy(piece.to)}) {
      if (!target) continue;
      piece.from ? std::memcpy(target, piece.from, piece.bytes) : std::memset(target, 0, piece.bytes);
    }
  }
  bytes_came(load.counted, load.bytes);
}

void start(const char* instruction, Pieces pieces, unsigned bytes, MemoryBarrier* barrier, const Site& site,
           const void* pc) {
  const unsigned thread = executor().current_thread();
  Load load{std::move(pieces), bytes, count_copy(instruction, thread, barrier, site)};
  used() = true;
  const race::Asynchronous how{.by_proxy = true, .agent = load.counted.agent, .epoch = load.counted.epoch};
  for (const Piece& piece : load.pieces) {
    probe(piece.to, piece.bytes);
    race::access_by(thread, piece.to, piece.bytes, Access::write, pc, how);
    if (!piece.from) continue;
    probe(piece.from, piece.bytes);
    race::access_by(thread, piece.from, piece.bytes, Access::read, pc, how);
  }
  if (!late()) return perform(load);
  for (const Piece& piece : load.pieces) std::memset(piece.to, 0xff, piece.bytes);
  bulk().loads.push_back(std::move(load));
}

}  // namespace

void begin_block_bulk() {
  bulk().loads.clear();
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
  return true;
}

char* proxy_copy(void* shared) {
  if (!executor().shared().contains(shared)) return nullptr;
  auto& proxy = bulk().proxy;
  if (!proxy) {
    used() = true;
    proxy = std::make_unique<char[]>(executor().shared().bytes());
    std::memset(proxy.get(), 0xff, executor().shared().bytes());
  }
  return proxy.get() + (static_cast<char*>(shared) - static_cast<char*>(executor().shared().data()));
}

const char* seen_by_proxy(const void* shared) {
  const char* const copy = proxy_copy(const_cast<void*>(shared));
  return copy ? copy : static_cast<const char*>(shared);
}

}  // namespace async

namespace emulated {

void bulk_load(void* to, const void* from, unsigned bytes, MemoryBarrier* barrier, const Site& site) {
  constexpr auto kName = "cp.async.bulk";
  const unsigned thread = executor().current_thread();
  if (bytes % 16 != 0 || bytes == 0)
    refuse(kName, thread, fmt::format("copies {} bytes, which is not a multiple of 16", bytes), site);
  check_address(kName, thread, to, 16, Where::shared, site);
  check_address(kName, thread, from, 16, Where::global, site);
  async::start(kName, {{static_cast<char*>(to), static_cast<const char*>(from), bytes}}, bytes, barrier, site,
               __builtin_return_address(0));
}

void tensor_load(void* to, const TensorMap& map, const int* at, int rank, MemoryBarrier* barrier,
                 const Site& site) {
  constexpr auto kName = "cp.async.bulk.tensor";
  const unsigned thread = executor().current_thread();
  const TensorLayout* const layout = layout_of(map);
  if (!layout) refuse(kName, thread, "got a pointer to something other than a tensor map", site);
  if (layout->rank != rank) {
    refuse(kName, thread, fmt::format("gives {} coordinates of a tensor of {} axes", rank, layout->rank),
           site);
  }
  const std::size_t alignment =
      layout->swizzle == Swizzle::none ? 128 : static_cast<std::size_t>(8 * bytes_of(layout->swizzle));
  check_address(kName, thread, to, alignment, Where::shared, site);
  async::start(kName, tile_pieces(*layout, at, static_cast<char*>(to)), tile_bytes(*layout), barrier, site,
               __builtin_return_address(0));
}

}  // namespace emulated
}  // namespace simt
