#include "dist/transports/staged_transport.h"

#include "tensor/base/error.h"
#include "tensor/detail/device_memory.h"
#include "tensor/pinned.h"

namespace athanor::dist {

StagedTransport::StagedTransport(Transport& below, Device device)
    : Transport(below.rank(), below.world_size(), Stream::create(device, StreamPriority::high)),
      below_(below),
      out_(Stream::create(device, StreamPriority::high)),
      in_(Stream::create(device, StreamPriority::high)) {
  ATH_CHECK(below.device().is_cpu() && device.is_cuda(),
            "staged: messages of a GPU must go through a transport of the host, but got {} over {}",
            device.str(), below.device().str());
}

std::unique_ptr<Transport> StagedTransport::duplicate() {
  return std::unique_ptr<Transport>(new StagedTransport(below_.duplicate(), device()));
}

StagedTransport::~StagedTransport() {
  for (Slot& slot : slots_) below_.cancel(slot.below);
}

Request StagedTransport::take(int peer, Tag tag, std::byte* data, std::size_t bytes, bool sends) {
  check_peer(peer);
  const Request request = slots_.take(device());
  Slot& slot = slots_[request];
  slot.sends = sends;
  slot.peer = peer;
  slot.tag = tag;
  slot.data = data;
  slot.stage = empty_pinned({static_cast<std::int64_t>(bytes)}, DType::u8);
  slot.ready.record(stream());
  return request;
}

Request StagedTransport::isend(int to, Tag tag, std::span<const std::byte> bytes) {
  // The const_cast is safe: only a receive writes its memory.
  const Request request = take(to, tag, const_cast<std::byte*>(bytes.data()), bytes.size(), true);
  Slot& slot = slots_[request];
  const StreamGuard here(out_);
  out_.wait(slot.ready);
  athanor::detail::copy_device_bytes(slot.stage.raw_data(), kCpu, bytes.data(), device(), bytes.size(),
                                     Site::current());
  slot.ready.record(out_);
  slot.state = State::copying_out;
  leaving_.push_back(request);
  return request;
}

Request StagedTransport::irecv(int from, Tag tag, std::span<std::byte> bytes) {
  const Request request = take(from, tag, bytes.data(), bytes.size(), false);
  Slot& slot = slots_[request];
  slot.below = below_.irecv(from, tag, {slot.stage.raw_data(), bytes.size()});
  slot.state = State::travelling;
  return request;
}

void StagedTransport::push() {
  // In order: messages arrive in the order in which the network below gets them.
  for (; !leaving_.empty(); leaving_.erase(leaving_.begin())) {
    Slot& slot = slots_[leaving_.front()];
    if (!slot.ready.done()) break;
    slot.below = below_.isend(slot.peer, slot.tag, {slot.stage.raw_data(), slot.stage.bytes()});
    slot.state = State::travelling;
  }
  for (Slot& slot : slots_) {
    if (slot.state != State::travelling || !below_.test(slot.below)) continue;
    slot.state = State::done;
    if (!slot.sends) arrive(slot);
  }
}

void StagedTransport::arrive(Slot& slot) {
  const StreamGuard here(in_);
  in_.wait(slot.ready);
  athanor::detail::copy_device_bytes(slot.data, device(), slot.stage.raw_data(), kCpu, slot.stage.bytes(),
                                     Site::current());
  slot.ready.record(in_);
  stream().wait(slot.ready);
}

bool StagedTransport::test(Request& request) {
  if (!request.pending()) return true;
  push();
  Slot& slot = slots_[request];
  if (slot.state != State::done) return false;
  release(request);
  return true;
}

void StagedTransport::cancel(Request& request) noexcept {
  if (!request.pending()) return;
  Slot& slot = slots_[request];
  below_.cancel(slot.below);
  std::erase_if(leaving_, [&](Request one) { return one.slot == request.slot; });
  release(request);
}

void StagedTransport::release(Request& request) {
  slots_[request].state = State::idle;
  slots_[request].stage = Tensor();
  slots_.release(request);
}

// Copies complete by themselves, unless the device hangs.
void StagedTransport::abandon() noexcept {
  leaving_.clear();
  for (Slot& slot : slots_) {
    below_.cancel(slot.below);
    slot.state = State::idle;
  }
  try {
    const AllowSync end;
    out_.synchronize();
    in_.synchronize();
    stream().synchronize();
  } catch (const std::exception&) {  // a failed device runs nothing
  }
}

}  // namespace athanor::dist
