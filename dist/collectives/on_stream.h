#pragma once

#include <memory>

#include "dist/collectives/collective.h"
#include "kernels/on_device.h"
#include "tensor/stream.h"

namespace athanor::dist {

/// A collective on device memory. Its messages and sums are work on the transport's stream, which waits for
/// the stream that fills the buffer. All work is queued as fast as the network accepts messages, and the host
/// polls an event for completion. The collective counts as done only then, so that the caller's deadline also
/// covers a stalled stream.
///
///     collective.filled()    event: after what the caller's stream holds by now
///     start(), advance()     transport's stream: waits for it; messages and sums; event
class OnStream final : public Collective {
 public:
  OnStream(Transport& transport, std::unique_ptr<Collective> inner)
      : transport_(transport),
        inner_(std::move(inner)),
        filled_(transport.device()),
        done_(transport.device()) {}
  /// Queued work must not touch freed memory: the transport gives up.
  ~OnStream() override {
    if (under_way_) transport_.session().give_up("a collective was released before it was done");
  }

  void filled() override { filled_.record(current_stream(transport_.device())); }
  void start(Tag tag) override {
    // A thread's first kernel creates its context, which waits for the current stream. Here that must not be
    // the transport's, whose messages have no deadline.
    on_device(transport_.device(), [](auto&) {});
    const StreamGuard here(transport_.stream());
    transport_.stream().wait(filled_);
    under_way_ = true;
    queued_ = false;
    inner_->start(tag);
  }
  bool advance() override {
    if (!queued_) {
      const StreamGuard here(transport_.stream());
      queued_ = inner_->advance();
      if (queued_) done_.record(transport_.stream());
    }
    arrived_ = transport_.arrived();
    under_way_ = !queued_ || !done_.done();
    return !under_way_;
  }

  bool queued() const override { return queued_; }

  std::int64_t progress() const override { return inner_->progress() + arrived_; }
  int waits_for() const override {
    const int behind = transport_.behind();
    return behind >= 0 ? behind : inner_->waits_for();
  }
  Call call() const override { return inner_->call(); }

 private:
  Transport& transport_;
  std::unique_ptr<Collective> inner_;
  Event filled_, done_;
  std::int64_t arrived_ = 0;
  bool queued_ = false, under_way_ = false;
};

}  // namespace athanor::dist
