#pragma once

#include <cstddef>
#include <memory>

#include "dist/transports/transport.h"

namespace athanor::dist {

/// The memory in which the ranks of one machine exchange messages: an anonymous file, which their launcher
/// creates and they inherit. Nothing of it is left behind, however the processes end.
class RankMemory {
 public:
  /// Creates it, for the launcher. Throws BackendError if the system has none (ulimit -f, /proc/sys).
  explicit RankMemory(int world_size);
  /// Opens that of the launcher in a rank.
  RankMemory(int file, int world_size);
  ~RankMemory();
  RankMemory(const RankMemory&) = delete;
  RankMemory& operator=(const RankMemory&) = delete;

  int file() const { return file_; }
  int world_size() const { return world_size_; }

  /// The launcher: the process of `rank` is gone, so that those that wait for it need no deadline. Unless its
  /// code is 0, no rank can continue; they report the code, or the signal if it is above 128.
  void set_ended(int rank, int exit_code);

  /// Part of the file for messages from one rank to another on one network, mapped by the first call.
  struct Channel;
  std::shared_ptr<Channel> channel(int network, int from, int to) const;
  struct Header;
  Header& header() const { return *header_; }

 private:
  std::size_t header_bytes() const;
  void map_header();

  int file_ = -1, world_size_ = 0;
  Header* header_ = nullptr;
};

/// Ranks of one machine that `--devices N` has started, over shared memory. A short message is copied through
/// one of the slots of the ring between two ranks. A long one stays where it is until its receiver copies it
/// from the sender's memory (process_vm_readv) or, if the kernel does not allow that, through a slot, piece
/// by piece. A rank whose process is gone is known at once: PeerLostError.
class SharedMemoryTransport final : public Transport {
 public:
  /// Messages up to so many bytes are copied twice, at once: the sender need not wait.
  static constexpr std::size_t kShort = std::size_t{16} << 10;
  /// Networks of one job; duplicate() throws ArgumentError beyond.
  static constexpr int kNetworks = 4096;

  /// `single_copy` false: as if the kernel did not allow process_vm_readv.
  SharedMemoryTransport(std::shared_ptr<RankMemory> memory, int rank, bool single_copy = true);
  ~SharedMemoryTransport() override;

  Request isend(int to, Tag tag, std::span<const std::byte> bytes) override;
  Request irecv(int from, Tag tag, std::span<std::byte> bytes) override;
  bool test(Request& request) override;
  void cancel(Request& request) noexcept override;
  void abandon() noexcept override;
  std::unique_ptr<Transport> duplicate() override;
  std::string lost() const override;

 private:
  struct Impl;
  explicit SharedMemoryTransport(std::unique_ptr<Impl> impl);
  Request post(int peer, Tag tag, std::span<std::byte> bytes, bool sends);

  std::unique_ptr<Impl> impl_;
};

}  // namespace athanor::dist
