#pragma once

#include <cstddef>
#include <cstdint>

namespace athanor {

/// The location of a call in the caller's code.
/// Used as a default argument: `const Site& site = Site::current()`. (std::source_location, which clang 14
/// does not have.)
struct Site {
  const char* file;
  int line;

  static constexpr Site current(const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
    return {file, line};
  }
};

/// Counts a wait of the host for the device: item(), copies to the host, printing, data-dependent shapes. The
/// CPU backend never waits but counts too, so a CPU test catches what would stall a GPU. While a ForbidSync
/// is alive on this thread, throws Error naming op and site instead.
void count_host_sync(const char* op, const Site& site);

/// Number of waits so far, over all threads.
std::int64_t host_syncs();

/// Copies between memories so far, over all threads; rand(shape, device) needs none.
struct CopyCounts {
  std::int64_t to_device = 0, to_host = 0, on_device = 0;  ///< calls
  std::int64_t to_device_bytes = 0, to_host_bytes = 0, on_device_bytes = 0;
};
CopyCounts copies();

/// Between which memories a copy is.
enum class CopyKind : std::uint8_t { to_device, to_host, on_device };
/// Adds one copy of that many bytes to copies().
void count_copy(CopyKind kind, std::size_t bytes);

/// How this thread currently treats a wait.
enum class SyncMode : std::uint8_t { counted, forbidden, ignored };

/// While alive, waits on this thread are treated so. Nests.
template <SyncMode kMode> class SyncScope {
 public:
  SyncScope();
  ~SyncScope();
  SyncScope(const SyncScope&) = delete;
  SyncScope& operator=(const SyncScope&) = delete;

 private:
  SyncMode saved_;
};

/// A wait for the device is an error.
using ForbidSync = SyncScope<SyncMode::forbidden>;
/// Waits are neither counted nor forbidden: for code that stalls on purpose, such as logging between steps.
using AllowSync = SyncScope<SyncMode::ignored>;

}  // namespace athanor
