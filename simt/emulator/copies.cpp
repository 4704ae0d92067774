#include "simt/emulator/copies.h"

#include <algorithm>
#include <cstring>

#include <fmt/format.h>
#include <sys/uio.h>
#include <unistd.h>

#include "simt/emulator/executor.h"

// Copies between host and device, and the two mistakes the host makes round them: it writes to the source
// before the copy has run, and it reads the destination before the copy has run. The first is found by a hash
// of the source, taken when the copy is queued and again when it runs. Against the second, the destination is
// filled with 0xff (NaN, or -1) until then.
//
// Other queued work may touch the same host memory in between, rightly: it is in the stream's order. Where
// some does, or a function of the host comes before in that order, nothing is checked and nothing is filled.

namespace simt {

const char* copy_name(cudaMemcpyKind kind) {
  switch (kind) {
    case cudaMemcpyHostToHost: return "host to host";
    case cudaMemcpyHostToDevice: return "host to device";
    case cudaMemcpyDeviceToHost: return "device to host";
    case cudaMemcpyDeviceToDevice: return "device to device";
    case cudaMemcpyDefault: break;
  }
  return "default";
}

namespace {

bool overlap(const char* a, std::size_t a_bytes, const char* b, std::size_t b_bytes) {
  return a < b + b_bytes && b < a + a_bytes;
}

struct Hash {
  std::uint64_t lanes[4] = {0x9e3779b97f4a7c15u, 0xbf58476d1ce4e5b9u, 0x94d049bb133111ebu,
                            0xd6e8feb86659fd93u};

  void add(const char* data, std::size_t bytes) {
    std::size_t at = 0;
    for (; at + 32 <= bytes; at += 32) {
      for (int lane = 0; lane < 4; ++lane) mix(lane, data + at + 8 * lane, 8);
    }
    for (; at < bytes; at += 8) mix(0, data + at, bytes - at < 8 ? bytes - at : 8);
  }
  void mix(int lane, const char* data, std::size_t bytes) {
    std::uint64_t word = 0;
    std::memcpy(&word, data, bytes);
    lanes[lane] = (lanes[lane] ^ word) * 0x9fb21c651e98df25u;
    lanes[lane] ^= lanes[lane] >> 29;
  }
  std::uint64_t value() const {
    std::uint64_t all = 0;
    for (const std::uint64_t lane : lanes) all = (all ^ lane) * 0x9fb21c651e98df25u + (all >> 31);
    return all;
  }
};

std::uint64_t hash_source(const CopyWork& copy) {
  Hash hash;
  hash.add(copy.from, copy.bytes);
  return hash.value();
}

// Pageable memory may be gone by now, which reading it must survive. 1: the same; 0: changed; -1: gone.
int compare_pageable(const CopyWork& copy) {
  Hash hash;
  char buffer[8192];
  for (std::size_t at = 0; at < copy.bytes; at += sizeof(buffer)) {
    const std::size_t bytes = std::min(sizeof(buffer), copy.bytes - at);
    const iovec to{buffer, bytes};
    const iovec from{const_cast<char*>(copy.from + at), bytes};
    if (process_vm_readv(getpid(), &to, 1, &from, 1, 0) != static_cast<ssize_t>(bytes)) return -1;
    hash.add(buffer, bytes);
  }
  return hash.value() == copy.hash;
}

std::string describe(const CopyWork& copy) {
  return fmt::format("the copy of {} bytes from {}, queued at {}:{}", copy.bytes, copy_name(copy.kind),
                     copy.site.file, copy.site.line);
}

// Whether queued work reads or writes this memory of the host.
bool in_use(const Runtime& all, const char* begin, std::size_t bytes, bool reads_count) {
  bool found = false;
  all.for_each_queued([&](const Stream&, const Op& op) {
    for_each_range(op, [&](const NamedRange& range) {
      using As = NamedRange::As;
      if (range.as == As::message || (range.as == As::source && !reads_count)) return;
      if (range.as != As::parameter) {
        found = found || overlap(begin, bytes, range.begin, range.bytes);
      } else if (const Allocation* memory = all.memory.find(range.begin)) {
        found = found || overlap(begin, bytes, memory->base, memory->bytes);
      }
    });
  });
  return found;
}

// Whether a function of the host comes before an op of this stream, in order: that may touch anything.
bool host_function_before(const Stream& stream, const Vector<Mark>& after) {
  struct Reach {
    const Stream* stream;
    std::uint64_t position;
  };
  Vector<Reach> reached(1, {&stream, stream.queued});
  const auto reach = [&](const Vector<Mark>& marks) {
    for (const Mark& mark : marks) {
      const bool known = std::any_of(reached.begin(), reached.end(), [&](const Reach& each) {
        return each.stream == mark.stream && each.position >= mark.position;
      });
      if (mark.stream && !known) reached.push_back({mark.stream, mark.position});
    }
  };
  reach(after);
  for (std::size_t i = 0; i < reached.size(); ++i) {
    const Reach each = reached[i];
    if (each.stream->running_host_function) return true;
    std::uint64_t position = each.stream->queued - each.stream->queue.size();
    for (const Op& op : each.stream->queue) {
      if (++position > each.position) break;
      if (std::holds_alternative<HostWork>(op.work)) return true;
      reach(op.after);
    }
  }
  return false;
}

}  // namespace

void watch(Runtime& all, const Stream& stream, const Vector<Mark>& after, CopyWork& copy) {
  if (copy.bytes == 0) return;
  if (copy.kind != cudaMemcpyHostToDevice && copy.kind != cudaMemcpyDeviceToHost) return;
  if (host_function_before(stream, after)) return;
  if (copy.kind == cudaMemcpyHostToDevice) {
    copy.checked = !in_use(all, copy.from, copy.bytes, false);
    copy.from_pageable = all.memory.find(copy.from) == nullptr;
    if (copy.checked) copy.hash = hash_source(copy);
  } else if (copy.kind == cudaMemcpyDeviceToHost) {
    if (!in_use(all, copy.to, copy.bytes, true)) std::memset(copy.to, 0xff, copy.bytes);
  }
}

void run_copy(const CopyWork& copy) {
  if (copy.checked) {
    const int same = copy.from_pageable ? compare_pageable(copy) : hash_source(copy) == copy.hash;
    if (same < 0) throw KernelFault(describe(copy) + ": its source was freed before the copy ran");
    if (same == 0) {
      throw KernelFault(describe(copy) +
                        ": its source was changed before the copy ran; it was reused too early, without "
                        "waiting for an event after the copy");
    }
  }
  race::access_range(copy.from, copy.bytes, false);
  race::access_range(copy.to, copy.bytes, true);
  if (copy.bytes > 0) std::memmove(copy.to, copy.from, copy.bytes);
}

}  // namespace simt
