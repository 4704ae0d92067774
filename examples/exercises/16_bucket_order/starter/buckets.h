#pragma once

#include <functional>
#include <utility>
#include <vector>

class Buckets {
 public:
  Buckets(const std::vector<int>& bucket_of, int buckets, std::function<void(int)> launch)
      : bucket_of_(bucket_of), sizes_(static_cast<std::size_t>(buckets)), launch_(std::move(launch)) {
    for (const int bucket : bucket_of) ++sizes_[static_cast<std::size_t>(bucket)];
    missing_ = sizes_;
  }

  void arrived(int parameter) {
    const int bucket = bucket_of_[static_cast<std::size_t>(parameter)];
    if (--missing_[static_cast<std::size_t>(bucket)] == 0) launch_(bucket);
  }

  void finish() { missing_ = sizes_; }

 private:
  std::vector<int> bucket_of_, sizes_, missing_;
  std::function<void(int)> launch_;
};
