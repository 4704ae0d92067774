#include "tensor/base/counters.h"

#include <atomic>
#include <string_view>
#include <utility>

#include "tensor/base/error.h"

namespace athanor {
namespace {

std::atomic<std::int64_t> syncs{0};
thread_local SyncMode mode = SyncMode::counted;

std::string_view base_name(std::string_view path) {
  const auto slash = path.rfind('/');
  return slash == path.npos ? path : path.substr(slash + 1);
}

}  // namespace

void count_host_sync(const char* op, const Site& site) {
  if (mode == SyncMode::ignored) return;
  if (mode == SyncMode::forbidden) {
    detail::fail<Error>(
        "{}: a training step must not wait for the device, but {}:{} waits; keep the value on the device, or "
        "read it between steps",
        op, base_name(site.file), site.line);
  }
  syncs.fetch_add(1, std::memory_order_relaxed);
}

std::int64_t host_syncs() {
  return syncs.load(std::memory_order_relaxed);
}

namespace {
constexpr std::size_t kCopyKinds = 3;
std::atomic<std::int64_t> copy_calls[kCopyKinds], copy_bytes[kCopyKinds];
}  // namespace

void count_copy(CopyKind kind, std::size_t bytes) {
  const auto index = static_cast<std::size_t>(kind);
  copy_calls[index].fetch_add(1, std::memory_order_relaxed);
  copy_bytes[index].fetch_add(static_cast<std::int64_t>(bytes), std::memory_order_relaxed);
}

CopyCounts copies() {
  const auto calls = [](CopyKind kind) { return copy_calls[static_cast<std::size_t>(kind)].load(); };
  const auto bytes = [](CopyKind kind) { return copy_bytes[static_cast<std::size_t>(kind)].load(); };
  return {calls(CopyKind::to_device), calls(CopyKind::to_host), calls(CopyKind::on_device),
          bytes(CopyKind::to_device), bytes(CopyKind::to_host), bytes(CopyKind::on_device)};
}

template <SyncMode kMode> SyncScope<kMode>::SyncScope() : saved_(std::exchange(mode, kMode)) {}
template <SyncMode kMode> SyncScope<kMode>::~SyncScope() {
  mode = saved_;
}
template class SyncScope<SyncMode::forbidden>;
template class SyncScope<SyncMode::ignored>;

}  // namespace athanor
