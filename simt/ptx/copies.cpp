#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include "simt/emulator/options.h"
#include "simt/emulator/tensor_tiles.h"
#include "simt/ptx/block.h"

// mbarriers, and the copies that run beside the threads.

namespace simt::ptx {

// ---- mbarrier

namespace {

constexpr std::int64_t kMaxCount = (1 << 20) - 1;  // of pending arrivals and, with either sign, of bytes

MemoryBarrier& barrier_at(const char* instruction, std::uint32_t offset, const Site& site) {
  auto& all = block().memory_barriers;
  const auto at = all.find(offset);
  if (at == all.end()) {
    refuse(instruction, fmt::format("finds no mbarrier at {:#x} of shared memory", offset), site);
  }
  return at->second;
}

// The phase is complete when no arrival is pending and all bytes are here; then the next begins. A copy that
// is still in flight would count its bytes in that.
void complete_phase(MemoryBarrier& barrier) {
  if (barrier.pending != 0 || barrier.bytes != 0) return;
  for (const BulkCopy& copy : block().bulk_copies) {
    if (copy.barrier != &barrier) continue;
    refuse(copy.instruction, copy.thread,
           fmt::format("brings {} bytes that phase {} of the mbarrier of {} does not expect", copy.bytes,
                       barrier.phase, place(barrier.made)),
           copy.site);
  }
  ++barrier.phase;
  barrier.pending = barrier.arrivals;
  barrier.release_all();
}

// expect-tx, and then arrive-on: in this order, so that the phase cannot end between them.
void arrive(const char* instruction, std::uint32_t offset, std::uint32_t expected_bytes, const Site& site) {
  MemoryBarrier& barrier = barrier_at(instruction, offset, site);
  barrier.bytes += expected_bytes;
  if (barrier.bytes > kMaxCount) {
    refuse(instruction,
           fmt::format("expects {} bytes in a phase, but at most {} can be", barrier.bytes, kMaxCount), site);
  }
  if (barrier.pending == 0) {
    refuse(instruction,
           fmt::format("is one arrival more than the {} that phase {} of the mbarrier of {} expects",
                       barrier.arrivals, barrier.phase, place(barrier.made)),
           site);
  }
  --barrier.pending;
  complete_phase(barrier);
}

}  // namespace

std::string MemoryBarrier::missing() const {
  std::string text = fmt::format("phase {} of the mbarrier of {}, which lacks {} of {} arrivals", phase,
                                 place(made), pending, arrivals);
  if (bytes > 0) text += fmt::format(" and {} bytes", bytes);
  if (bytes < 0) text += fmt::format(", and to which {} bytes came that were not expected", -bytes);
  return text;
}

void mbarrier_init(std::uint32_t offset, std::uint32_t arrivals, const Site& site) {
  constexpr const char* kName = "mbarrier.init";
  shared(offset, 8, site);
  if (arrivals == 0 || arrivals > kMaxCount) {
    refuse(kName, fmt::format("expects {} arrivals, which is not 1 to {}", arrivals, kMaxCount), site);
  }
  auto [at, is_new] = block().memory_barriers.try_emplace(offset);
  MemoryBarrier& barrier = at->second;
  if (!is_new) {
    refuse(kName, fmt::format("makes an mbarrier where there is that of {}", place(barrier.made)), site);
  }
  barrier.offset = offset;
  barrier.arrivals = barrier.pending = arrivals;
  barrier.made = site;
}

void mbarrier_arrive(std::uint32_t barrier, const Site& site) {
  arrive("mbarrier.arrive", barrier, 0, site);
}

void mbarrier_arrive_expect_tx(std::uint32_t barrier, std::uint32_t bytes, const Site& site) {
  arrive("mbarrier.arrive.expect_tx", barrier, bytes, site);
}

bool mbarrier_try_wait(std::uint32_t offset, std::uint32_t parity, const Site& site) {
  constexpr const char* kName = "mbarrier.try_wait.parity";
  if (parity > 1) refuse(kName, fmt::format("waits for the parity {}", parity), site);
  MemoryBarrier& barrier = barrier_at(kName, offset, site);
  const std::uint64_t phase = barrier.phase;
  if (phase % 2 != parity) return true;
  barrier.wait(site);
  // Who is not there before the next phase ends, too, sees the parity that it had before.
  if (barrier.phase > phase + 1) {
    refuse(kName,
           fmt::format("waits for phase {} of the mbarrier of {}, but may miss it: phase {} has begun", phase,
                       place(barrier.made), barrier.phase),
           site);
  }
  return true;
}

// ---- copies

namespace {

void poison(std::uint32_t offset, std::uint32_t bytes) {
  if (late()) std::memset(shared_window.memory + offset, 0xff, bytes);
}

void require_shared(const char* instruction, std::uint32_t offset, std::uint32_t bytes,
                    std::uint32_t alignment, const Site& site) {
  if (offset < kSharedBegin || offset > shared_window.bytes || bytes > shared_window.bytes - offset) {
    refuse(instruction,
           fmt::format("writes {} bytes at {:#x}, but shared memory is {:#x} to {:#x}", bytes, offset,
                       kSharedBegin, shared_window.bytes),
           site);
  }
  if (offset % alignment != 0) {
    refuse(instruction, fmt::format("writes at {:#x}, which is no multiple of {}", offset, alignment), site);
  }
  require_unread(instruction, offset, bytes, site);
}

// ---- cp.async

void run(const Copy& copy) {
  if (copy.source_bytes > 0) std::memcpy(copy.to, copy.from, copy.source_bytes);
  std::memset(copy.to + copy.source_bytes, 0, copy.bytes - copy.source_bytes);
}

CopyGroups& my_copies() {
  std::vector<CopyGroups>& all = block().copies;
  if (all.empty()) all.resize(executor().threads());
  return all[current_thread()];
}

}  // namespace

void cp_async(std::uint32_t to, std::uint64_t from, std::uint32_t bytes, std::uint32_t source_bytes,
              const Site& site) {
  constexpr const char* kName = "cp.async";
  if ((bytes != 4 && bytes != 8 && bytes != 16) || source_bytes > bytes) {
    refuse(kName, fmt::format("copies {} bytes of {}", source_bytes, bytes), site);
  }
  require_shared(kName, to, bytes, bytes, site);
  if (source_bytes > 0 && from % bytes != 0) {
    refuse(kName, fmt::format("reads at {:#x}, which is no multiple of {}", from, bytes), site);
  }
  const Copy copy{shared_window.memory + to, reinterpret_cast<const char*>(from), bytes, source_bytes};
  poison(to, bytes);
  my_copies().open.push_back(copy);
  if (!late()) run(copy);
}

void cp_async_commit() {
  CopyGroups& groups = my_copies();
  groups.closed.push_back(std::move(groups.open));
  groups.open.clear();
}

void cp_async_wait_group(std::uint32_t pending) {
  CopyGroups& groups = my_copies();
  for (; groups.closed.size() > pending; groups.closed.pop_front()) {
    if (!late()) continue;
    for (const Copy& copy : groups.closed.front()) run(copy);
  }
}

void cp_async_wait_all() {
  cp_async_commit();
  cp_async_wait_group(0);
}

// ---- cp.async.bulk, cp.async.bulk.tensor

namespace {

std::uint32_t element_bytes(TensorType type) {
  switch (type) {
    case TensorType::u8: return 1;
    case TensorType::f16:
    case TensorType::bf16: return 2;
    case TensorType::f32: return 4;
  }
  return 0;
}

std::uint32_t span_of(Swizzle swizzle) {
  switch (swizzle) {
    case Swizzle::none: return 16;
    case Swizzle::bytes_32: return 32;
    case Swizzle::bytes_64: return 64;
    case Swizzle::bytes_128: return 128;
  }
  return 0;
}

// The box lies in shared memory row by row, axis 0 first; then its pieces of 16 bytes, of which a row has a
// whole number, are swizzled.
void write_box(const BulkCopy& copy) {
  const TensorLayout& map = copy.layout;
  const std::uint32_t each = element_bytes(map.type), span = span_of(map.swizzle), per_piece = 16 / each;
  const std::uint32_t pieces = copy.bytes / 16;
  for (std::uint32_t piece = 0; piece < pieces; ++piece) {
    std::uint32_t rest = piece * per_piece;
    const std::int64_t x = std::int64_t{copy.at[0]} + rest % map.tile[0];
    rest /= map.tile[0];
    bool inside = true;
    std::int64_t from = 0;
    for (int axis = 1; axis < map.rank; ++axis) {
      const std::int64_t y = std::int64_t{copy.at[axis]} + rest % map.tile[axis];
      rest /= map.tile[axis];
      inside = inside && y >= 0 && y < static_cast<std::int64_t>(map.size[axis]);
      from += y * static_cast<std::int64_t>(map.stride[axis]);
    }
    char* const to = shared_window.memory + swizzled(copy.to + piece * 16, span);
    std::memset(to, 0, 16);
    for (std::uint32_t i = 0; inside && i < per_piece; ++i) {
      if (x + i < 0 || x + i >= static_cast<std::int64_t>(map.size[0])) continue;
      std::memcpy(to + i * each, static_cast<const char*>(map.data) + from + (x + i) * each, each);
    }
  }
}

void run(const BulkCopy& copy) {
  if (copy.layout.rank > 0) {
    write_box(copy);
  } else {
    std::memcpy(shared_window.memory + copy.to, copy.from, copy.bytes);
  }
  copy.barrier->bytes -= copy.bytes;  // complete-tx
  complete_phase(*copy.barrier);
}

void start(BulkCopy&& copy) {
  if (copy.barrier->bytes - copy.bytes < -kMaxCount) {
    refuse(copy.instruction, "brings more bytes than an mbarrier can count", copy.site);
  }
  poison(copy.to, copy.bytes);
  if (late()) {
    block().bulk_copies.push_back(std::move(copy));
  } else {
    run(copy);
  }
}

}  // namespace

void cp_async_bulk(std::uint32_t to, std::uint64_t from, std::uint32_t bytes, std::uint32_t barrier,
                   const Site& site) {
  constexpr const char* kName = "cp.async.bulk";
  require_shared(kName, to, bytes, 16, site);
  if (from % 16 != 0 || bytes % 16 != 0) {
    refuse(kName, fmt::format("copies {} bytes at {:#x}: both must be multiples of 16", bytes, from), site);
  }
  start({.instruction = kName,
         .thread = current_thread(),
         .site = site,
         .to = to,
         .bytes = bytes,
         .from = reinterpret_cast<const char*>(from),
         .layout = {.rank = 0},
         .at = {},
         .barrier = &barrier_at(kName, barrier, site)});
}

void cp_async_bulk_tensor(std::uint32_t to, std::uint64_t map, int rank, const std::int32_t* at,
                          std::uint32_t barrier, const Site& site) {
  constexpr const char* kName = "cp.async.bulk.tensor";
  const TensorLayout* const layout = layout_of(*reinterpret_cast<const TensorMap*>(map));
  if (!layout) refuse(kName, "is given what is no tensor map", site);
  if (layout->rank != rank) {
    refuse(kName, fmt::format("gives {} coordinates for a tensor of {} axes", rank, layout->rank), site);
  }
  std::uint32_t bytes = element_bytes(layout->type);
  for (int axis = 0; axis < rank; ++axis) bytes *= layout->tile[axis];
  // A swizzle's pattern repeats every 8 spans; the box begins with it.
  const std::uint32_t span = span_of(layout->swizzle);
  require_shared(kName, to, bytes, std::max(128u, 8 * span), site);
  BulkCopy copy{.instruction = kName,
                .thread = current_thread(),
                .site = site,
                .to = to,
                .bytes = bytes,
                .from = nullptr,
                .layout = *layout,
                .at = {},
                .barrier = &barrier_at(kName, barrier, site)};
  std::copy(at, at + rank, copy.at);
  start(std::move(copy));
}

// Whichever: they finish in any order. By SIMT_ORDER the oldest, the latest, or one by chance.
bool run_one() {
  std::vector<BulkCopy>& waiting = block().bulk_copies;
  if (waiting.empty()) return false;
  std::size_t which = 0;
  if (options().threads.kind == Order::Kind::reverse) which = waiting.size() - 1;
  if (options().threads.kind == Order::Kind::random) which = executor().random().below(waiting.size());
  const BulkCopy copy = waiting[which];
  waiting.erase(waiting.begin() + static_cast<std::ptrdiff_t>(which));
  run(copy);
  return true;
}

}  // namespace simt::ptx
