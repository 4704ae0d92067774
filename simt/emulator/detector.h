#pragma once

#include <string>

#include "simt/emulator/block_order.h"
#include "simt/emulator/cuda/runtime_api.h"
#include "simt/emulator/cuda/site.h"
#include "simt/emulator/cuda/types.h"
#include "simt/emulator/plain_memory.h"
#include "simt/emulator/program_memory.h"
#include "simt/emulator/race.h"
#include "simt/emulator/shadow.h"

// The race detector's state, which race.cpp keeps, and its words (race_words.cpp).

namespace simt::race {

struct OpRecord {
  enum class Kind : std::uint8_t { kernel, copy, fill, message, other } kind = Kind::other;
  std::uint32_t slot = 0;
  std::uint64_t position = 0, stream_id = 0;
  const char* name = "";
  Site site;
  dim3 grid, block;
  std::size_t bytes = 0;
  cudaMemcpyKind direction = cudaMemcpyDefault;
};

struct Detector {
  Clock host;
  Deque<OpRecord> ops = Deque<OpRecord>(1);  // by number; 0 is none
  Shadow shadow;
  std::string report;
  std::string unwritten;  // a read of what was never written: reported if no write races with it later

  // The op that runs.
  std::uint32_t op = 0;
  Clock clock;
  std::uint32_t known_op = 0;  // the latest other op asked about, and whether it is before this one
  bool known_before = false;

  // The grid, block and thread that run.
  const Grid* grid = nullptr;
  Range dynamic_shared, parameters, memory;  // memory: the allocation of the latest access
  std::uint32_t block = 0;
  unsigned thread = 0;
  BlockOrder order;
  Vector<const char*> agents;  // what each is waited for by
};

Detector& detector();

/// "thread (1,0,0) of block (0,0,0)", "asynchronous work of block (0,0,0)"; empty for an op that is no
/// kernel.
std::string thread_name(const OpRecord& op, const Stamp& stamp);
/// "kernel fill on stream 7"
std::string op_name(const OpRecord& op);
/// " at k.cu:20"
std::string place(const Stamp& stamp);
/// "writes atomically at k.cu:20"
std::string how(const Stamp& stamp, bool write, bool past);

// The report of the op that runs; the first one stays.
void say(std::string text);
/// Two accesses of which neither happened before the other.
void clash(const Stamp& before, bool before_wrote, const Stamp& after, bool after_writes, bool shared);
/// An asynchronous access to what was written, in time, but without a fence between the proxies.
void unfenced(const Stamp& write, const Stamp& after, bool after_writes, bool shared);

}  // namespace simt::race
