#pragma once

#include <cstdint>
#include <stdexcept>
#include <vector>

#include "bytes.h"

class Reader {
 public:
  explicit Reader(Bytes file) : file_(file) {
    const std::uint64_t count = number_at(file, 8);
    for (std::uint64_t i = 0; i < count; ++i) {
      const std::uint64_t at = 16 + 24 * i;
      records_.push_back({number_at(file, at), number_at(file, at + 8), number_at(file, at + 16)});
    }
  }

  std::uint64_t size() const { return records_.size(); }

  Bytes record(std::uint64_t i) const { return part_of(file_, records_[i].offset, records_[i].length); }

 private:
  struct Record {
    std::uint64_t offset, length, checksum;
  };
  Bytes file_;
  std::vector<Record> records_;
};
