#pragma once

#include <atomic>
#include <mutex>
#include <utility>

namespace athanor::kernels {

/// A list for many threads that only grows: to read it takes no lock, and elements never move.
template <class T> class GrowingList {
 public:
  GrowingList() = default;
  ~GrowingList() {
    const Element* element = head_.load(std::memory_order_acquire);
    while (element) delete std::exchange(element, element->next);
  }
  GrowingList(const GrowingList&) = delete;
  GrowingList& operator=(const GrowingList&) = delete;

  /// The element for which matches(element) holds; if there is none, the result of make() is one from now on.
  template <class Matches, class Make> const T& get(const Matches& matches, const Make& make) {
    if (const T* found = find(matches)) return *found;
    const std::lock_guard lock(making_);
    if (const T* found = find(matches)) return *found;
    const auto* const element = new Element{make(), head_.load(std::memory_order_relaxed)};
    head_.store(element, std::memory_order_release);
    return element->value;
  }

 private:
  struct Element {
    T value;
    const Element* next;
  };

  template <class Matches> const T* find(const Matches& matches) const {
    const Element* element = head_.load(std::memory_order_acquire);
    while (element && !matches(element->value)) element = element->next;
    return element ? &element->value : nullptr;
  }

  std::mutex making_;
  std::atomic<const Element*> head_{nullptr};
};

}  // namespace athanor::kernels
