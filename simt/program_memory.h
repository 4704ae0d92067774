#pragma once

// What of the memory that kernels reach is neither the device's nor on their stacks.

namespace simt::race {

struct Range {
  const char* begin = nullptr;
  const char* end = nullptr;
  bool contains(const char* address) const { return address >= begin && address < end; }
};

/// In a thread_local block of this thread of the host: static shared memory lies there.
bool is_thread_local(const char* address);

/// A constant or global of the program, or of a library it has loaded.
bool in_program(const char* address);

}  // namespace simt::race
