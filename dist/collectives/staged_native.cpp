#include "dist/collectives/collective.h"
#include "dist/collectives/slice.h"
#include "dist/transports/staged_transport.h"
#include "tensor/detail/device_memory.h"
#include "tensor/pinned.h"

namespace athanor::dist {

// A collective of the network below on pinned memory, between two copies. stream() waits for the second, and
// whoever uses the memory next begins after that.
class StagedTransport::StagedNative final : public Collective {
 public:
  using What = NativeCall::What;

  StagedNative(StagedTransport& owner, const NativeCall& call, const Tensor& stage,
               std::unique_ptr<Collective> below)
      : owner_(owner), call_(call), stage_(stage), below_(std::move(below)), copied_(owner.device()) {
    const Range all{0, call.buffer.numel()};
    const auto rank = static_cast<std::size_t>(owner.rank());
    const bool root = owner.rank() == call.root;
    switch (call.what) {
      case What::all_reduce: out_ = in_ = all; break;
      case What::reduce_scatter: out_ = all, in_ = call.pieces[rank]; break;
      case What::all_gather: out_ = call.pieces[rank], in_ = all; break;
      case What::broadcast: (root ? out_ : in_) = all; break;
    }
  }

  void start(Tag tag) override {
    tag_ = tag;
    state_ = State::copying_out;
    copied_.record(owner_.stream());
    owner_.out_.wait(copied_);
    copy(owner_.out_, out_, true);
  }
  bool advance() override {
    if (state_ == State::copying_out) {
      if (!copied_.done()) return false;
      below_->start(tag_);
      state_ = State::travelling;
    }
    if (state_ == State::travelling) {
      if (!below_->advance()) return false;
      copy(owner_.in_, in_, false);
      owner_.stream().wait(copied_);
      owner_.flight().moved(static_cast<std::int64_t>(call_.buffer.bytes()));
      state_ = State::done;
    }
    return true;
  }
  std::int64_t progress() const override { return static_cast<std::int64_t>(state_) + below_->progress(); }
  int waits_for() const override { return below_->waits_for(); }
  const char* name() const override { return call_.name(); }
  Payload payload() const override { return {call_.buffer.dtype(), call_.buffer.numel()}; }

 private:
  void copy(const Stream& stream, const Range& range, bool leaves) {
    const StreamGuard here(stream);
    if (range.count() > 0) {
      const std::span<std::byte> device = bytes_of(call_.buffer, range), host = bytes_of(stage_, range);
      const auto& [to, from] = leaves ? std::pair(host, device) : std::pair(device, host);
      athanor::detail::copy_device_bytes(to.data(), leaves ? kCpu : owner_.device(), from.data(),
                                         leaves ? owner_.device() : kCpu, to.size(), Site::current());
    }
    copied_.record(stream);
  }

  StagedTransport& owner_;
  NativeCall call_;
  Tensor stage_;  // of the buffer's size and dtype
  std::unique_ptr<Collective> below_;
  Range out_, in_;
  Event copied_;
  Tag tag_ = 0;
  State state_ = State::idle;
};

std::unique_ptr<Collective> StagedTransport::native(const NativeCall& call) {
  const auto bytes = static_cast<std::int64_t>(call.buffer.bytes());
  if (!native_stage_.defined() || native_stage_.numel() < bytes) {
    const AllocTag named("comm");
    native_stage_ = empty_pinned({std::max<std::int64_t>(bytes, 1)}, DType::u8);
  }
  NativeCall below = call;
  below.buffer = as_type(native_stage_, call.buffer.dtype(), 0, call.buffer.numel());
  const Tensor stage = below.buffer;
  std::unique_ptr<Collective> collective = below_.native(below);
  if (!collective) return nullptr;
  return std::make_unique<StagedNative>(*this, call, stage, std::move(collective));
}

}  // namespace athanor::dist
