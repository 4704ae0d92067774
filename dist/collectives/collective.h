#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "dist/collectives/group.h"
#include "dist/collectives/session.h"
#include "dist/transports/transport.h"
#include "kernels/accumulate.h"
#include "tensor/tensor.h"

namespace athanor::dist {

/// A joint operation of ranks, as a state machine that its user advances: a separate thread, a backward pass
/// between two ops, or a waiting caller (dist/collectives/wait.h). It is created once, for memory at a fixed
/// address, and may be started any number of times; a start allocates nothing.
///
/// All ranks must start the same collectives in the same order with the same tags.
class Collective {
 public:
  virtual ~Collective() = default;
  Collective(const Collective&) = delete;
  Collective& operator=(const Collective&) = delete;

  /// On a device: fixes the buffer's content as of now on the calling thread's current stream. Call it before
  /// each start(), which may run on another thread.
  virtual void filled() {}
  virtual void start(Tag tag) = 0;
  /// Advances as far as possible without waiting. True when done.
  virtual bool advance() = 0;
  /// On a device: whether the host has nothing more to do for it, as all its work is queued. The next
  /// collective of the same transport may then start: its work comes after.
  virtual bool queued() const { return false; }

  /// Messages completed since the start: lets a waiting caller see progress.
  virtual std::int64_t progress() const = 0;
  /// The rank whose message is missing; -1 where none is.
  virtual int waits_for() const = 0;
  /// Its description for the flight record, without a bucket.
  virtual Call call() const = 0;
  const char* name() const { return call().name; }

 protected:
  Collective() = default;
};

/// A sequence of collectives.
class Sequence final : public Collective {
 public:
  Sequence(const char* name, std::vector<std::unique_ptr<Collective>> parts)
      : name_(name), parts_(std::move(parts)) {}

  void start(Tag tag) override {
    tag_ = tag;
    at_ = 0;
    done_ = 0;
    parts_[0]->start(tag);
  }
  bool advance() override {
    while (at_ < parts_.size() && parts_[at_]->advance()) {
      done_ += parts_[at_]->progress();
      if (++at_ < parts_.size()) parts_[at_]->start(tag_);
    }
    return at_ == parts_.size();
  }
  std::int64_t progress() const override {
    return done_ + (at_ < parts_.size() ? parts_[at_]->progress() : 0);
  }
  int waits_for() const override { return at_ < parts_.size() ? parts_[at_]->waits_for() : -1; }
  /// Reports the buffer of its largest part.
  Call call() const override {
    const auto less = [](const auto& a, const auto& b) { return a->call().count < b->call().count; };
    Call call = (*std::max_element(parts_.begin(), parts_.end(), less))->call();
    call.name = name_;
    return call;
  }

 private:
  const char* name_;
  std::vector<std::unique_ptr<Collective>> parts_;
  Tag tag_ = 0;
  std::size_t at_ = 0;
  std::int64_t done_ = 0;
};

/// Messages in flight, completed in starting order; the destructor cancels them.
class InFlight {
 public:
  InFlight(Transport& transport, int room)
      : transport_(transport), messages_(static_cast<std::size_t>(room)) {}
  ~InFlight() { clear(); }
  InFlight(const InFlight&) = delete;
  InFlight& operator=(const InFlight&) = delete;

  bool empty() const { return first_ == end_; }
  bool full() const { return end_ - first_ == messages_.size(); }
  /// The other end of the oldest message; -1 if there is none.
  int peer() const { return empty() ? -1 : at(first_).peer; }

  void send(int to, Tag tag, std::span<const std::byte> bytes) {
    at(end_) = {transport_.isend(to, tag, bytes), to, bytes.size()};
    ++end_;
  }
  void receive(int from, Tag tag, std::span<std::byte> bytes) {
    at(end_) = {transport_.irecv(from, tag, bytes), from, bytes.size()};
    ++end_;
  }
  /// Removes the oldest message if it is complete; returns whether it was.
  bool pop() {
    if (empty() || !transport_.test(at(first_).request)) return false;
    transport_.session().flight().moved(static_cast<std::int64_t>(at(first_).bytes));
    ++first_;
    return true;
  }
  /// Transport::flush()
  bool flush() { return transport_.flush(); }
  void clear() {
    for (; first_ != end_; ++first_) transport_.cancel(at(first_).request);
  }

 private:
  struct Message {
    Request request;
    int peer = -1;
    std::size_t bytes = 0;
  };
  Message& at(std::size_t i) { return messages_[i % messages_.size()]; }
  const Message& at(std::size_t i) const { return messages_[i % messages_.size()]; }

  Transport& transport_;
  std::vector<Message> messages_;
  std::size_t first_ = 0, end_ = 0;
};

/// A collective made of messages between the ranks of a group.
class PointToPoint : public Collective {
 public:
  std::int64_t progress() const override { return received_ + sent_; }
  int waits_for() const override { return incoming_.empty() ? outgoing_.peer() : incoming_.peer(); }
  Call call() const override {
    return buffer_.defined() ? Call{name_, buffer_.dtype(), buffer_.numel()} : Call{name_};
  }

 protected:
  /// `name`: a literal. `scratch`: additional memory for messages, owned until they are complete or
  /// cancelled. `room`: maximum messages in flight each way.
  PointToPoint(const char* name, Transport& transport, const Group& group, const Tensor& buffer,
               const Tensor& scratch, int room)
      : name_(name),
        group_(group),
        index_(group.index_of(transport.rank())),
        buffer_(buffer),
        scratch_(scratch),
        incoming_(transport, room),
        outgoing_(transport, room) {}

  const char* name_;
  Group group_;
  int index_;  // in the group
  Tensor buffer_, scratch_;
  Tag tag_ = 0;
  std::int64_t received_ = 0, sent_ = 0;  // messages complete since the start
  InFlight incoming_, outgoing_;          // last: destroyed before the memory
};

/// The phases of an all-reduce.
enum class Phase : std::uint8_t { reduce_scatter, all_gather };

/// A phase between the ranks of a group.
struct PhaseOf {
  Phase phase;
  Tensor buffer;  ///< dense, on the transport's device
  kernels::Combine how;
  Tensor scratch;             ///< u8, only for reduce_scatter; others may use it in between
  std::vector<Range> pieces;  ///< tile the buffer, by index in the group; some may be empty
  std::int64_t segment_bytes;
  const char* name = nullptr;  ///< a literal; null: named after algorithm and phase
};

}  // namespace athanor::dist
