#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "dist/transports/slots.h"
#include "dist/transports/transport.h"
#include "tensor/tensor.h"

namespace athanor::dist {

/// Messages in GPU memory over a network for host memory: for MPI without CUDA, threads, and several ranks on
/// one GPU, which NCCL refuses.
///
///     isend    copy to pinned memory on one copy stream, after what stream() holds; then a message
///     irecv    a message to pinned memory; then a copy to the device on another copy stream, for which
///              stream() waits
///
/// Both copies thus overlap with the work of collectives. empty_pinned() reuses pinned memory only after its
/// copy is done. Every test() advances all messages.
class StagedTransport final : public Transport {
 public:
  /// `below` must be a network of the host, outlive this, and have no other user.
  StagedTransport(Transport& below, Device device);
  ~StagedTransport() override;

  Request isend(int to, Tag tag, std::span<const std::byte> bytes) override;
  Request irecv(int from, Tag tag, std::span<std::byte> bytes) override;
  bool test(Request& request) override;
  void cancel(Request& request) noexcept override;
  bool threads_may_call() const override { return below_.threads_may_call(); }
  std::string lost() const override { return below_.lost(); }
  /// Over a duplicate of the underlying network, with separate streams.
  std::unique_ptr<Transport> duplicate() override;
  void abandon() noexcept override;

 private:
  StagedTransport(std::unique_ptr<Transport> below, Device device) : StagedTransport(*below, device) {
    owned_ = std::move(below);
  }
  enum class State : std::uint8_t { idle, copying_out, travelling, done };
  struct Slot {
    explicit Slot(Device device) : ready(device) {}

    State state = State::idle;
    bool sends = false;
    int peer = 0;
    Tag tag = 0;
    std::byte* data = nullptr;
    Tensor stage;  // pinned
    Event ready;   // copied out; for a receive: its memory may be written
    Request below{};
  };
  Request take(int peer, Tag tag, std::byte* data, std::size_t bytes, bool sends);
  void push();
  void arrive(Slot& slot);
  void release(Request& request);

  std::unique_ptr<Transport> owned_;  // below_, of a duplicate
  Transport& below_;
  Stream out_, in_;
  Slots<Slot> slots_;
  std::vector<Request> leaving_;  // sends being copied, in order
};

}  // namespace athanor::dist
